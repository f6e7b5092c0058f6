#!/usr/bin/env bash
# Every check of the project, the cheap ones first; pytest's closing line is the last thing printed.
#
#   scripts/test.sh [ARGUMENT...]          all of it; arguments are pytest's
#   scripts/test.sh quick [ARGUMENT...]    what a change in progress needs: no test that mounts, takes seconds, or needs Java or Spark
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"

# The tests start hundreds of programs: each would compile the whole source again where Python keeps nothing.
unset PYTHONDONTWRITEBYTECODE

quick=false
[ "${1-}" != quick ] || { quick=true && shift; }

# Two processes a processor, because tests wait half of their time; each may need 4 GiB (Spark and a broker).
workers=$(($(nproc) * 2))
room=$(($(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo) / 4194304))
[ "$workers" -le "$room" ] || workers=$((room > 0 ? room : 1))

step() { printf '\n── %s\n' "$*"; }

# What the tests need is made beside the checks, which take one processor: archives of the classes of Spark and Kafka, and
# the tests as pytest compiles them, which each of its processes would do for itself.
made_beside=
if ! $quick; then
    beside=$(mktemp)
    { python -m testing.class_archives && python -m pytest --collect-only -q --no-header; } >"$beside" 2>&1 &
    made_beside=$!
    trap 'kill "$made_beside" 2>/dev/null || true; rm -f "$beside"' EXIT
fi

mapfile -t shell_scripts < <(git ls-files '*.sh' .ci/run)
step shellcheck "${shell_scripts[@]}"
shellcheck "${shell_scripts[@]}"
step ruff
ruff check .
ruff format --check .
step mypy
mypy
step lint-imports
lint-imports
if [ -n "$made_beside" ]; then
    step "archives of the classes of Spark and Kafka, and the tests compiled"
    wait "$made_beside" || { tail -n 40 "$beside" && exit 1; }
    tail -n 1 "$beside"
    rm -f "$beside"
    trap - EXIT
fi
if $quick; then
    set -- -m 'not fuse and not java and not spark and not root and not slow' "$@"
else
    step "pytest --uncompiled: the same tests over the plain sources of the compiled modules"
    # But for those that end a process at each of its steps on the disk: these are the same in both builds.
    python -m pytest -q --numprocesses "$workers" -p tests.uncompiled --uncompiled --deselect tests/storage/compaction/test_killed_passes.py --deselect tests/storage/recovery/test_interrupted_recovery.py tests/storage/codec tests/storage/compaction tests/storage/segment/test_segment.py tests/storage/recovery tests/storage/inspect/test_check.py tests/storage/inspect/test_sound.py tests/fusefs/forms tests/fusefs/requests tests/pipeline/test_reading_segments.py
fi
step "pytest in $workers processes"
# tests/scheduling.py says what each of them is given.
exec python -m pytest --numprocesses "$workers" --dist loadfile "$@"
