# shellcheck shell=bash
# Functions for preparing a checkout and for building packages. Source this file in the top folder of a checkout.

say() { printf '· %s\n' "$1"; }
fail() { printf 'topicfs: %s\n' "$1" >&2 && exit 1; }

# locked PYTHON NAME…: print the packages' lines of requirements.lock, with hashes, so that pip accepts only these files.
locked() {
    "$1" - "${@:2}" <<'PY'
import re, sys
wanted = {re.sub("[-_.]+", "-", name).lower() for name in sys.argv[1:]}
blocks = re.split(r"(?m)^(?=[a-z])", open("requirements.lock").read())
found = {block.partition("==")[0]: block for block in blocks if "==" in block}
missing = wanted - found.keys()
if missing:
    sys.exit(f"topicfs: requirements.lock has no {', '.join(sorted(missing))}")
print(*(found[name] for name in sorted(wanted)), sep="\n")
PY
}

# needed PYTHON [EXTRA…]: print the packages that the project and these extras of pyproject.toml need. requirements.lock
# lists for each package which other packages need it ("via").
needed() {
    "$1" - "${@:2}" <<'PY'
import re, sys, tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
extras = [each for extra in sys.argv[1:] for each in project["optional-dependencies"][extra]]
wanted = {re.sub("[-_.]+", "-", re.match(r"[\w.-]+", each)[0]).lower() for each in project["dependencies"] + extras}
blocks = re.split(r"(?m)^(?=[a-z])", open("requirements.lock").read())
users = {block.partition("==")[0]: set(re.findall(r"(?m)^    # (?:via|  ) ?([\w.-]+)", block)) for block in blocks}
while more := {name for name in users if users[name] & wanted} - wanted:
    wanted |= more
print(*sorted(wanted), sep="\n")
PY
}

# copy_sources PYTHON FOLDER: copy what a wheel is made from, so that a build leaves nothing in the checkout. Cython's output is
# copied too; the build repeats what is older than its source. Compiled modules are not copied, because they may refer to
# the Python of this machine's .venv.
copy_sources() {
    local packages
    packages=$("$1" -c 'import tomllib
setuptools = tomllib.load(open("pyproject.toml", "rb"))["tool"]["setuptools"]
print(*(pattern.rstrip("*") for pattern in setuptools["packages"]["find"]["include"]))')
    mkdir -p "$2/build"
    # shellcheck disable=SC2086 # names of folders, without blanks
    cp -rpL pyproject.toml setup.py README.md LICENSE $packages "$2"
    find "$2" \( -name '*.so' -o -name '*.c' -o -name __pycache__ \) -prune -exec rm -rf {} +
    [ ! -d build/cython ] || cp -rp build/cython "$2/build"
}

# build_wheel PYTHON FOLDER [PACKAGE…]: make a wheel in FOLDER/wheels with tools in FOLDER/tools, which also gets the packages.
build_wheel() {
    "$1" -m venv "$2/tools"
    locked "$1" setuptools wheel cython "${@:3}" >"$2/tools.lock"
    "$2/tools/bin/python" -m pip --quiet install --require-hashes --no-deps -r "$2/tools.lock" </dev/null
    copy_sources "$1" "$2/sources"
    # Some Pythons make linked modules search for libraries in the folder in which the Python itself was built.
    LDSHARED="${CC:-gcc} -shared" "$2/tools/bin/python" -m pip --quiet wheel --no-build-isolation --no-deps -w "$2/wheels" "$2/sources" </dev/null
}
