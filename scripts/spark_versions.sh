#!/usr/bin/env bash
# Runs the tests of Spark's data source with other versions of PySpark, each in an environment of its own that uses
# all other packages of .venv (build/spark-versions/VERSION; 450 MB each).
#
#   scripts/spark_versions.sh                                        the oldest and the newest supported version
#   scripts/spark_versions.sh 4.1.4 tests/pipeline/test_jobs.py      one version, and other tests
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/sources.sh

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
versions=(4.1.4 4.2.1)
[ $# -eq 0 ] || { versions=("$1") && shift; }
tests=("$@")
[ $# -gt 0 ] || tests=(tests/pipeline/test_spark_{registration,reading,writing,bad_input}.py
    tests/pipeline/test_{sql_tables,pushdown,progress}.py)
packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
for version in "${versions[@]}"; do
    folder=build/spark-versions/$version
    if [ ! -e "$folder/ready" ]; then
        say "installing PySpark $version"
        .venv/bin/python -m venv --clear "$folder"
        "$folder/bin/python" -m pip install -q "pyspark==$version"
        # Modules of .venv come after those of this environment. .pth files of .venv are not read, so add the sources here too.
        printf '%s\n' "$packages" "$PWD" >"$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/rest.pth"
        touch "$folder/ready"
    fi
    say "testing with PySpark $version"
    # Older versions leave sockets open, which pytest would report as errors.
    "$folder/bin/python" -m pytest -q -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning "${tests[@]}"
done
