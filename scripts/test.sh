#!/usr/bin/env bash
# Every check of the project, the cheap ones first. The last output is pytest's closing line or, with `quick`, the output of
# mypy and lint-imports, which run at the same time as pytest.
#
#   scripts/test.sh [ARGUMENT...]          all of it; arguments are pytest's
#   scripts/test.sh quick [ARGUMENT...]    what a change in progress needs: no test that mounts, takes seconds, or needs Java or Spark
set -euo pipefail
cd "$(dirname "$0")/.."
# Use ccache if Debian's package is installed: tests build packages from C code that was compiled before.
PATH="$PWD/.venv/bin:/usr/lib/ccache:$PATH"

# The tests start hundreds of programs. If Python cached no compiled modules, each would compile all sources again. Without
# buffers, the programs would not fail as they do for their users.
unset PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED

quick=false
[ "${1-}" != quick ] || { quick=true && shift; }

# Three processes per processor, because tests that mount or call a broker wait for two thirds of their time. A process
# needs 3 GiB of memory (two processes, with Spark and a broker, need 4 GiB). Tests of `quick` do not wait.
workers=$(($(nproc) * 3))
! $quick || workers=$(nproc)
room=$(($(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo) / 3145728))
[ "$workers" -le "$room" ] || workers=$((room > 0 ? room : 1))

step() { printf '\n── %s\n' "$*"; }

types_and_imports() {
    step mypy
    mypy
    step lint-imports
    lint-imports
}

# Run a check in the background; its output is shown once the script waits for it.
beside=
begin_beside() {
    output=$(mktemp)
    "$@" >"$output" 2>&1 &
    beside=$!
    trap 'kill "$beside" 2>/dev/null || true; rm -f "$output"' EXIT
}
end_beside() {
    local status=0 lines=$1
    wait "$beside" || { status=$? && lines=40; }
    trap - EXIT
    tail -n "$lines" "$output"
    rm -f "$output"
    return "$status"
}

# Make the class archives of Spark and Kafka. Let one pytest process compile the tests, which otherwise each process of the
# run would do.
prepare_tests() { python -m testing.class_archives && python -m pytest --collect-only -q --no-header; }

mapfile -t shell_scripts < <(git ls-files '*.sh' .ci/run)
step shellcheck "${shell_scripts[@]}"
shellcheck "${shell_scripts[@]}"
step ruff
ruff check .
ruff format --check .
step codespell
git grep -lIz '' | xargs -0 codespell

if $quick; then
    begin_beside types_and_imports
    step "pytest in $workers processes"
    failed=0
    python -m pytest --numprocesses "$workers" --dist loadfile -m 'not fuse and not java and not spark and not root and not slow' "$@" || failed=$?
    end_beside 40
    exit "$failed"
fi

begin_beside prepare_tests
types_and_imports
step "archives of the classes of Spark and Kafka, and the tests compiled"
end_beside 1
step "pytest --uncompiled: the same tests over the plain sources of the compiled modules"
# Leave out tests that end a process at each of its steps on the disk: they do the same in both builds.
python -m pytest -q --numprocesses "$workers" -p tests.uncompiled --uncompiled --deselect tests/storage/compaction/test_killed_passes.py --deselect tests/storage/recovery/test_interrupted_recovery.py tests/storage/codec tests/storage/compaction tests/storage/segment/test_segment.py tests/storage/recovery tests/inspection/test_check.py tests/inspection/test_sound.py tests/fusefs/forms tests/fusefs/requests tests/pipeline/test_reading_segments.py
step "pytest in $workers processes"
# tests/scheduling.py decides which tests each process gets.
exec python -m pytest --numprocesses "$workers" --dist loadfile "$@"
