#!/usr/bin/env bash
# Prepares this checkout to run: installs system packages, .venv and the locked Python packages, and compiles the modules.
# A repeated call takes well under a second, and the script never asks a question.
#
#   scripts/prepare.sh          what `make build` and `make run` need
#   scripts/prepare.sh site     what `make site` needs as well
#   scripts/prepare.sh tests    what the tests need as well: every locked package, and the programs that they call
#   scripts/prepare.sh packages what `make deb` needs: system packages, and no .venv
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/sources.sh

readonly venv=.venv
readonly minimum="3.11"
build_packages=(gcc libc6-dev libfuse3-dev fuse3 pkg-config python3-dev python3-venv)
deb_packages=(binutils dpkg-dev)
test_packages=("${deb_packages[@]}" attr bsdextrautils ccache debootstrap fish groff-base jq kcat less man-db mandoc openssl parallel prometheus rsync shellcheck strace systemd tar vim zsh)

# -- system packages ---------------------------------------------------------------------------------------------

missing_packages() {
    local package
    for package in "$@"; do
        dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed \
            || printf '%s\n' "$package"
    done
}

# Without apt, the user must have installed these commands of the packages.
require_commands() {
    local command absent=()
    for command in gcc pkg-config fusermount3 python3; do
        command -v "$command" >/dev/null || absent+=("$command")
    done
    command -v pkg-config >/dev/null && ! pkg-config --exists fuse3 && absent+=("the headers of libfuse 3")
    [ ${#absent[@]} -eq 0 ] || fail "missing here, and there is no apt-get to install it: ${absent[*]}"
}

install_packages() {
    local as_root=() log
    [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
    if [ ${#as_root[@]} -gt 0 ] && ! sudo -n true 2>/dev/null; then
        fail "missing system packages; install them with: sudo apt-get install $*"
    fi
    say "installing with apt-get: $*"
    log=$(mktemp)
    if ! { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq update &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends "$@"; } \
        >"$log" 2>&1 </dev/null; then
        tail -n 5 "$log" >&2
        rm -f "$log"
        fail "could not install: $* (apt-get's last lines are above)"
    fi
    rm -f "$log"
}

prepare_system() {
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        require_commands
        return
    fi
    local missing
    mapfile -t missing < <(missing_packages "$@")
    [ ${#missing[@]} -eq 0 ] || install_packages "${missing[@]}"
}

# A Kafka broker for tests. If it cannot be installed, its tests are skipped with the reason; on CI they fail.
prepare_broker() {
    local jdk
    if { command -v java && command -v mvn; } >/dev/null || ! command -v apt-get >/dev/null; then
        return
    fi
    for jdk in openjdk-17-jdk-headless openjdk-21-jdk-headless; do
        (install_packages "$jdk" maven) 2>/dev/null && return
    done
    say "no Java or no Maven here: the tests against a Kafka broker will be skipped"
}

# -- Python ------------------------------------------------------------------------------------------------------

# A Python is suitable if it is new enough, can make a virtual environment and has the headers for compiling.
python_does() {
    "$1" - "$minimum" >/dev/null 2>&1 <<'PY'
import ensurepip, os, sys, sysconfig, venv
minimum = tuple(map(int, sys.argv[1].split(".")))
header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
sys.exit(not (sys.version_info >= minimum and os.path.exists(header)))
PY
}

# Prefer the system's Python, whose headers were installed above. Distributions compile it with profiles, and pyenv by
# default does not: the same code then takes a quarter more processor time.
choose_python() {
    local candidate
    for candidate in /usr/bin/python3 python3 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null && python_does "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    fail "no Python ≥ $minimum with venv and headers found; install python3.11, python3.11-venv and python3.11-dev"
}

make_venv() {
    if [ -x "$venv/bin/python" ] && "$venv/bin/python" -c "import pip" 2>/dev/null; then
        return
    fi
    local python
    python=$(choose_python)
    say "making $venv with $("$python" --version)"
    rm -rf "$venv"
    "$python" -m venv "$venv"
}

pip_install() {
    "$venv/bin/python" -m pip --disable-pip-version-check --no-input --quiet install "$@" </dev/null
}

# A stamp holds the fingerprint of a step's inputs; the step is repeated when the fingerprint has changed.
stamped() { [ -f "$venv/$1" ] && [ "$(<"$venv/$1")" = "$2" ]; }

# install_requirements [EXTRA…]: install the locked packages that these extras need; without arguments, all packages.
install_requirements() {
    local list=requirements.lock stamp=requirements.stamp print names
    print=$(cat requirements.lock "$venv/pyvenv.cfg" | sha256sum)
    stamped "$stamp" "$print" && return
    if [ $# -gt 0 ]; then
        list=$venv/some.lock stamp=some.stamp
        names=$(needed "$venv/bin/python" "$@")
        # shellcheck disable=SC2086 # names of packages, without blanks
        locked "$venv/bin/python" $names >"$list"
        print=$(cat "$list" "$venv/pyvenv.cfg" | sha256sum)
        stamped "$stamp" "$print" && return
    fi
    say "downloading and installing the locked Python packages (make run: 110 MB, make test: 1.4 GB)"
    pip_install --require-hashes -r "$list" || fail "could not install the packages of requirements.lock"
    printf '%s\n' "$print" >"$venv/$stamp"
}

# Print the sources that setup.py lists under a name.
sources_of() {
    "$venv/bin/python" - "$1" <<'PY'
import ast, pathlib, sys
tree = ast.parse(pathlib.Path("setup.py").read_text())
for node in tree.body:
    if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == sys.argv[1]:
        print(*ast.literal_eval(node.value), sep="\n")
PY
}

compiled_modules_exist() {
    local source
    for source in "$@"; do
        compgen -G "${source%.py}.*.so" >/dev/null || return 1
    done
}

install_project() {
    local sources numbers print
    mapfile -t sources < <(sources_of COMPILED)
    mapfile -t numbers < <(sources_of CONSTANTS)
    print=$({
        cat pyproject.toml setup.py
        cat requirements.lock "$venv/pyvenv.cfg" | sha256sum
        cat "${sources[@]}" "${numbers[@]}"
        # Leave out the .pxd files that setup.py makes of the named numbers.
        find storage fusefs pipeline -name '*.pxd' ! -name fields.pxd ! -name wire.pxd -print0 | sort -z | xargs -0 cat
    } | sha256sum)
    stamped project.stamp "$print" && compiled_modules_exist "${sources[@]}" && return
    say "building topicfs: a C compiler works on ${#sources[@]} modules, for a minute or more"
    pip_install --no-build-isolation --no-deps --editable . || fail "the build failed; its last lines are above"
    printf '%s\n' "$print" >"$venv/project.stamp"
}

mode=${1:-}
packages=("${build_packages[@]}") extras=(mount build)
case $mode in
    tests) packages+=("${test_packages[@]}") extras=() ;;
    packages) packages+=("${deb_packages[@]}") ;;
    site) extras+=(docs) ;;
esac
prepare_system "${packages[@]}"
[ "$mode" != packages ] || exit 0
# The tests build packages from the C code that is compiled here. With Debian's ccache, it is compiled only once.
[ "$mode" != tests ] || PATH=/usr/lib/ccache:$PATH
[ "$mode" != tests ] || prepare_broker
make_venv
install_requirements "${extras[@]}"
install_project
