#!/usr/bin/env bash
# Builds a Debian package for this machine's Debian or Ubuntu: dist/topicfs_VERSION_ARCHITECTURE.deb.
#
#   scripts/deb.sh [FOLDER]     writes the package to FOLDER instead of dist
#
# The command and the Python packages that it needs are in /usr/lib/topicfs, a virtual environment of the system's Python.
# Debian 12's own packages are too old (trio, pyfuse3, lz4, zstandard, crc32c), or missing (cramjam, isal, zlib-ng), and
# one folder with tested versions is simpler than a mixture. The versions and hashes are those of requirements.lock.
# dpkg-deb builds the package; debhelper's helpers for Python would expect the Python packages to come from Debian.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/sources.sh

readonly python=/usr/bin/python3 prefix=/usr/lib/topicfs
output=$(realpath -m "${1:-dist}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
readonly root=$work/root

for command in gcc pkg-config dpkg-shlibdeps strip "$python"; do
    command -v "$command" >/dev/null ||
        fail "$command is missing; install binutils dpkg-dev gcc libc6-dev libfuse3-dev pkg-config python3-dev python3-venv"
done
# The version contains the release, as in Debian's own updates of releases (0.1.0-1~deb12u1): each release has its own
# package, and an upgrade of the system installs the new release's package. "~" leaves 0.1.0-1 to Debian itself.
# shellcheck disable=SC1091 # the system's own file
release=$(. /etc/os-release && echo "${ID/#debian/deb}${VERSION_ID:-$VERSION_CODENAME}")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)-1~${release}u1
readonly maintainer="The topicfs developers <topicfs@localhost>"
architecture=$(dpkg --print-architecture)
codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
python_version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
next_python=$("$python" -c 'import sys; print("%d.%d" % (sys.version_info[0], sys.version_info[1] + 1))')
# Files get the time of the last change of the sources, if it is known.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

# -- the Python packages --------------------------------------------------------------------------------------------

pip() { "$work/tools/bin/python" -m pip --quiet "$@" </dev/null; }

say "building the wheel"
build_wheel "$python" "$work"

say "installing them into $prefix"
mkdir -p "$root$prefix"
"$python" -m venv --without-pip "$root$prefix"
rm -rf "$root$prefix"/bin/[aA]ctivate* "$root$prefix"/{.gitignore,include}
sed -i '/^command = /d' "$root$prefix/pyvenv.cfg"
mapfile -t names < <(needed "$python" mount)
locked "$python" "${names[@]}" >"$work/run.lock"
pip wheel --require-hashes --no-deps -w "$work/wheels" -r "$work/run.lock"
pip --python "$root$prefix/bin/python3" install --no-compile --no-deps --no-index "$work"/wheels/*.whl
packages=$root$prefix/lib/python$python_version/site-packages
rm -f "$packages"/topicfs-*.dist-info/direct_url.json
find "$root$prefix/bin" -type f ! -name topicfs ! -name mount.topicfs -delete
sed -i "1s|.*|#!$prefix/bin/python3|" "$root$prefix"/bin/topicfs "$root$prefix"/bin/mount.topicfs
find "$packages" -name '*.so' -exec strip --strip-unneeded {} +
# Compile the modules now, so that nothing is written to the folder later that a removal would leave behind.
"$python" -m compileall -q --invalidation-mode unchecked-hash -s "$root" -p / "$packages" || fail "could not compile the sources"

# -- the other files -------------------------------------------------------------------------------------------------

say "adding man pages, completions and the unit"
mkdir -p "$root"/{usr/bin,usr/sbin,etc/topicfs,usr/share/man,usr/lib/systemd/system,usr/share/doc/topicfs/examples}
ln -s "../lib/topicfs/bin/topicfs" "$root/usr/bin/topicfs"
ln -s "../lib/topicfs/bin/mount.topicfs" "$root/usr/sbin/mount.topicfs"
topicfs() { "$root$prefix/bin/python3" "$root$prefix/bin/topicfs" "$@"; }
topicfs manual "$root/usr/share/man" >/dev/null
find "$root/usr/share/man" -type f -exec gzip -9n {} +
while read -r shell file; do
    mkdir -p "$root/usr/share/$(dirname "$file")"
    topicfs completion "$shell" >"$root/usr/share/$file"
done <<'END'
bash bash-completion/completions/topicfs
zsh zsh/vendor-completions/_topicfs
fish fish/vendor_completions.d/topicfs.fish
END
cp packaging/systemd/topicfs@.service "$root/usr/lib/systemd/system/"
cp packaging/debian/orders.conf "$root/usr/share/doc/topicfs/examples/"
gzip -9nc CHANGELOG.md >"$root/usr/share/doc/topicfs/changelog.gz"
gzip -9n >"$root/usr/share/doc/topicfs/changelog.Debian.gz" <<END
topicfs ($version) $codename; urgency=medium

  * What changed is in changelog.gz.

 -- $maintainer  $(date --utc --rfc-email --date="@$SOURCE_DATE_EPOCH")
END
"$root$prefix/bin/python3" packaging/debian/copyright.py >"$root/usr/share/doc/topicfs/copyright"

# -- the package -----------------------------------------------------------------------------------------------------

say "packing"
ln -sf "../../../..$(realpath "$python")" "$root$prefix/bin/python3"
sed -i 's|^executable = .*|executable = '"$(realpath "$python")"'|' "$root$prefix/pyvenv.cfg"
find "$root" -newermt "@$SOURCE_DATE_EPOCH" -print0 | xargs -0r touch --no-dereference --date="@$SOURCE_DATE_EPOCH"
chmod -R u=rwX,go=rX "$root"
mkdir -p "$root/DEBIAN" "$work/debian"
touch "$work/debian/control"
mapfile -t libraries < <(find "$packages" -name '*.so')
needed=$(cd "$work" && dpkg-shlibdeps -O --ignore-missing-info "${libraries[@]/#/-e}" 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
[ -n "$needed" ] || fail "dpkg-shlibdeps found no library that the compiled modules need"
cat >"$root/DEBIAN/control" <<END
Package: topicfs
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Section: utils
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Depends: python3 (>= $python_version), python3 (<< $next_python), fuse3, passwd, $needed
Recommends: ca-certificates
Description: Kafka-compatible topics as plain files
 Topics are directories and records are lines: echo >> appends, cat reads,
 tail -f follows. The files on disk are those of an Apache Kafka broker, byte
 for byte; topics of a running cluster can be mounted, too.
END
cp packaging/debian/{postinst,prerm,postrm} "$root/DEBIAN/"
chmod 755 "$root"/DEBIAN/p*
(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
mkdir -p "$output"
package=$output/topicfs_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$root" "$package" >/dev/null
say "$package"
