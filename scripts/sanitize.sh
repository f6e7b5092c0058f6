#!/usr/bin/env bash
# Reads the fuzz corpus, and changed copies of it, with a codec that is compiled with AddressSanitizer and UBSan: a read or
# write outside a buffer, or an undefined operation, ends the run with status 1.
#
#   scripts/sanitize.sh [CHANGES]      CHANGES: number of changed inputs that are read in addition to the corpus
#
# The codec reads bytes that others wrote, in C and without Python's checks of bounds. This script builds storage/codec and
# the modules that are compiled with it in build/sanitized. The libraries for gzip, lz4 and zstd are those of the wheels,
# without checks.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/sources.sh

python=$PWD/.venv/bin/python copy=build/sanitized
PATH="/usr/lib/ccache:$PATH"
command -v gcc >/dev/null || fail "gcc is missing; install it with its libasan and libubsan"

say "copying the sources into $copy"
rm -rf "$copy"
mkdir -p "$copy"
git ls-files -z --cached --others --exclude-standard | tar --null --files-from=- --ignore-failed-read --create | tar --extract --directory="$copy"
cd "$copy"
# The compiled modules that read bytes from others, with less optimization, which takes a tenth of the time.
sed -i -e '/^    "/{/"storage\/\(codec\|counts\)\//!d}' -e 's/"-O3"/"-O1"/' setup.py

say "compiling the codec with AddressSanitizer and UBSan"
CFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer" \
    "$python" setup.py --quiet build_ext --inplace

say "reading the corpus and its changes"
# Python's own allocator would hide errors between its small objects. Memory that it keeps to the end is not a leak.
LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" PYTHONMALLOC=malloc \
    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
    PYTHONPATH=$PWD "$python" -m tests.fuzz changes "$@"
