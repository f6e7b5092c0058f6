"""Tests of the Debian package: built, installed in two releases of Debian, used, reinstalled and purged."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.doubles.debian import own_release, run_inside
from tests.installing.conftest import CCACHE, QUICK, ROOT, run_compiling, run_with_certificates

pytestmark = [pytest.mark.fuse, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(2700)]

NEEDED = ("fuse3", "python3")
"""Only the dependencies of the package, so that the tests notice a missing dependency."""
INSTALLED = "set -eu; dpkg --install /packages/topicfs_*.deb > /dev/null; dpkg --listfiles topicfs"
USED = """
set -eu
topicfs --version
mkdir /srv/orders
mount -t topicfs /var/lib/orders /srv/orders -o acks=all
mkdir /srv/orders/orders
printf 'anna\\thello\\n' >> /srv/orders/orders/0/log.kv
cat /srv/orders/orders/0/0.kv
topicfs umount /srv/orders
topicfs cat --data /var/lib/orders orders/0 --format '%o %k %s\\n'
topicfs explain --data /var/lib/orders orders/0/0 > /dev/null
dpkg --verify topicfs
dpkg --install /packages/topicfs_*.deb > /dev/null
topicfs topics list --data /var/lib/orders | cat
dpkg --purge topicfs > /dev/null
hash -r
type topicfs mount.topicfs 2> /dev/null || echo gone
[ ! -e /var/lib/topicfs ] && ! getent passwd topicfs && ! getent group topicfs && echo "no user"
"""
MOUNTING = (ROOT / "docs" / "mount.md").read_text().partition("\n## At boot")[2].partition("\n## ")[0]
BY_HAND = re.findall(r"(?m)^    ((?:mkdir|mount) .*)$", MOUNTING)
FSTAB = re.findall(r"(?m)^    (/var/\S+ .*)$", MOUNTING)
"""The commands and fstab(5) lines that docs/mount.md tells users of the package to type."""
PAGE = (ROOT / "docs" / "install.md").read_text()
(INSTALL,) = re.findall(r"(?m)^    (apt install .*)$", PAGE)
RELEASES = ("bookworm", "trixie")
"""Debian's old stable and stable releases."""
(BUILT_WITH,) = re.findall(r"install (binutils [^\"]*)", (ROOT / "scripts" / "deb.sh").read_text())
"""The build dependencies that scripts/deb.sh names."""
EXAMPLE = "/usr/share/doc/topicfs/examples/orders.conf"
FUSE = """
device=$(mktemp -u)
mknod -m 666 "$device" c 10 229
mount --bind "$device" /dev/fuse
"""
"""Creates the FUSE device as udev does, for every user."""
APPENDED = """
mkdir /srv/orders/%(topic)s
echo hello >> /srv/orders/%(topic)s/0/log
stat --format '%%U %%a' /srv/orders/%(topic)s/0/log
theirs() { setpriv --reuid 4321 --regid 4321 --clear-groups "$@"; }
theirs cat /srv/orders/%(topic)s/0/log
theirs sh -c 'echo no >> /srv/orders/%(topic)s/0/log' 2>&1 | grep -o 'Permission denied'
theirs mkdir /srv/orders/theirs 2>&1 | grep -o 'Permission denied'
topicfs umount /srv/orders
"""
SEEN = ["hello", "Permission denied", "Permission denied"]
"""What a second user gets: the content when reading, and errors for everything else."""
ALONE = """
theirs() { setpriv --reuid 4321 --regid 4321 --clear-groups "$@" 2>&1 || true; }
theirs cat /srv/orders/orders/0/log
theirs topicfs cat --data /var/lib/topicfs/orders orders/0
theirs sh -c 'echo no | topicfs append --data /var/lib/topicfs/orders orders/0'
"""
"""A script in which a second user tries to read and write a mount that is not shared with others."""
UNIT = r"""
unit=/usr/lib/systemd/system/topicfs@.service
value() { sed -n "s/^$1=//p" $unit; }
capabilities() { value $1 | tr 'A-Z ' 'a-z,' | sed 's/cap_/+/g'; }
mkdir --parents /srv/orders
log=$(mktemp)
set -a
eval "$(value Environment)"
. /etc/topicfs/orders.conf
set +a
[ "$(value User) 755" = "$(stat --format '%U %a' "/var/lib/$(value StateDirectory)")" ]
setpriv --reuid "$(value User)" --regid "$(value User)" --init-groups --no-new-privs \
    --inh-caps "$(capabilities AmbientCapabilities)" --ambient-caps "$(capabilities AmbientCapabilities)" \
    --bounding-set "-all,$(capabilities CapabilityBoundingSet)" \
    bash -c "exec $(value ExecStart)" 2> "$log" &
daemon=$!
until mountpoint --quiet /srv/orders; do [ -d /proc/$daemon ] || cat "$log" >&2; sleep 0.01; done
"""
"""A script that runs the unit's ExecStart as the unit's user and with its capabilities, as systemd does."""
DPKGS_OWN = re.compile(
    r"var/lib/dpkg/|var/log/|var/cache/|etc/ld\.so\.cache|dev/null"
    r"|etc/(passwd|shadow|group|gshadow|subuid|subgid)-?$|etc/\.pwd\.lock$"
)
EVERYTHING = {
    "/usr/bin/topicfs",
    "/usr/sbin/mount.topicfs",
    "/usr/lib/topicfs/bin/python3",
    "/usr/lib/systemd/system/topicfs@.service",
    "/usr/share/bash-completion/completions/topicfs",
    "/usr/share/zsh/vendor-completions/_topicfs",
    "/usr/share/fish/vendor_completions.d/topicfs.fish",
    "/usr/share/man/man1/topicfs.1.gz",
    "/usr/share/man/man1/topicfs-cat.1.gz",
    "/usr/share/man/man8/mount.topicfs.8.gz",
    "/usr/share/doc/topicfs/copyright",
    "/usr/share/doc/topicfs/examples/orders.conf",
    "/etc/topicfs",
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    """A folder with the package that `make deb` builds."""
    folder = tmp_path_factory.mktemp("packages")
    subprocess.run([ROOT / "scripts" / "deb.sh", folder], env={**os.environ, **QUICK}, check=True)
    return folder


@pytest.fixture(scope="module", params=RELEASES)
def installed(request, fresh, tmp_path_factory) -> Path:
    """A Debian system from debootstrap, in which the documented apt command has installed this release's package."""
    release = request.param
    bare, changes = fresh((), release), tmp_path_factory.mktemp(release)
    if release == own_release():
        folder = request.getfixturevalue("packages")
    else:
        tools, making = (
            fresh((*BUILT_WITH.split(), CCACHE), release),
            tmp_path_factory.mktemp(f"{release}-build"),
        )
        run_compiling(tools, making, "cd /sources && scripts/deb.sh /packages", shared={ROOT: "/sources"})
        folder = making / "upper" / "packages"
    line = f"apt-get -q update && cd /checkout && DEBIAN_FRONTEND=noninteractive {INSTALL} --yes"
    run_with_certificates(bare, changes, line, shared={folder: "/checkout/dist"})
    return Path(f"{changes / 'upper'}:{bare}")


def inside(fresh, changes: Path, packages: Path, script: str) -> list[str]:
    """Return a script's output lines in a Debian system with the package's dependencies."""
    return said_in(fresh(NEEDED), changes, script, {packages: "/packages"})


def said_in(tree: Path, changes: Path, script: str, shared: Mapping[Path, str] | None = None) -> list[str]:
    """Return a script's output lines; fail if the script fails or prints an error."""
    done = run_inside(tree, changes, script, shared=shared)
    assert (0, "") == (done.returncode, done.stderr), done.stdout
    return done.stdout.splitlines()


def test_the_package_brings_all_that_belongs_to_the_command(fresh, packages, tmp_path):
    """The package has manual pages, completion, the systemd unit, and the helper of mount(8)."""
    files = set(inside(fresh, tmp_path, packages, INSTALLED))
    assert set() == EVERYTHING - files
    folders = ("/usr/lib/topicfs", "/usr/share/", "/usr/bin", "/usr/sbin", "/usr/lib/systemd", "/etc/topicfs")
    assert set() == {file for file in files if not file.startswith(folders)} - {
        "/.",
        "/usr",
        "/usr/lib",
        "/etc",
        "/usr/share",
    }


def test_the_package_works_and_a_purge_leaves_only_topics(fresh, packages, tmp_path):
    """root can use mount(8) and the commands; after a purge only topics and dpkg's lists are left."""
    said = inside(fresh, tmp_path, packages, f"{INSTALLED} > /dev/null\n{USED}")
    assert ["topicfs 0.1.0", "anna\thello", "0 anna hello", "orders", "gone", "no user"] == said
    upper = tmp_path / "upper"
    left = {
        str(path.relative_to(upper))
        for path in upper.rglob("*")
        if path.is_symlink() or path.is_file() or "topicfs" in path.name
    }
    topics = {path for path in left if path.startswith("var/lib/orders/")}
    assert "var/lib/orders/orders-0/00000000000000000000.log" in topics
    assert set() == {path for path in left - topics if not DPKGS_OWN.match(path)}
    assert not (upper / "usr/lib/topicfs").exists()


def test_each_release_has_a_version_of_its_own(installed, tmp_path):
    """Each Debian release has its own package version, because an archive keeps one file per version."""
    script = """
        . /etc/os-release
        version=$(dpkg-query --show --showformat '${Version}' topicfs)
        dpkg --compare-versions "$version" lt "0.1.0-1~deb$((VERSION_ID + 1))u1" && echo "$VERSION_ID $version"
    """
    ((number, version),) = (line.split() for line in said_in(installed, tmp_path, script))
    assert f"0.1.0-1~deb{number}u1" == version
    assert f"`{version}` on Debian {number}" in PAGE


def test_the_documented_lines_mount_on_a_fresh_debian(installed, tmp_path):
    """The documented mount commands and fstab(5) lines work, and another user can read but not append."""
    (mkdir, mount), (line,) = BY_HAND, FSTAB
    script = f"""set -eu
        {FUSE}
        {mkdir}
        {mount}
        {APPENDED % {"topic": "typed"}}
        echo '{line}' > /etc/fstab
        mount /srv/orders
        {APPENDED % {"topic": "at-boot"}}
        ls /var/lib/topicfs/orders | grep -- -0
    """
    said = ["root 644", *SEEN]
    assert [*said, *said, "at-boot-0", "typed-0"] == said_in(installed, tmp_path, script)


def test_without_allow_other_no_other_user_sees_a_mount(installed, tmp_path):
    """Without allow_other, another user sees neither the mount nor its files and gets one-line errors from commands."""
    (mkdir, mount), (line,) = BY_HAND, FSTAB
    script = f"""set -eu
        {FUSE}
        {mkdir}
        {mount.removesuffix(",allow-other")}
        mkdir /srv/orders/orders
        echo hello >> /srv/orders/orders/0/log
        stat --format '%U %a' /srv/orders /var/lib/topicfs/orders
        {ALONE}
        topicfs umount /srv/orders
        echo '{line.replace(",allow-other", "")}' > /etc/fstab
        mount /srv/orders
        stat --format '%U %a' /srv/orders
        cat /srv/orders/orders/0/log
        {ALONE}
        topicfs umount /srv/orders
    """
    refused = [
        "cat: /srv/orders/orders/0/log: Permission denied",
        "topicfs: /var/lib/topicfs/orders: Permission denied",
        "topicfs: /var/lib/topicfs/orders/.lock: Permission denied",
    ]
    owned = ["root 755", "root 700"]
    assert [*owned, *refused, "root 755", "hello", *refused] == said_in(installed, tmp_path, script)


def test_the_unit_mounts_the_packaged_example(installed, tmp_path):
    """The unit mounts as its own user, who owns new topics; topics keep their owners after a purge."""
    script = f"""set -eu
        {FUSE}
        cp {EXAMPLE} /etc/topicfs/
        {UNIT}
        {APPENDED % {"topic": "served"}}
        wait $daemon
        grep -c -i -e error -e warning -e denied "$log" || true
        stat --format '%U %n' /var/lib/topicfs/orders/served-0
        rm /etc/topicfs/orders.conf
        dpkg --purge topicfs > /dev/null
        stat --format '%U %n' /var/lib/topicfs/orders/served-0
    """
    owned = "topicfs /var/lib/topicfs/orders/served-0"
    assert ["topicfs 644", *SEEN, "0", owned, owned] == said_in(installed, tmp_path, script)


@pytest.mark.parametrize(
    ("made", "stays"),
    [("useradd --gid users topicfs", "user"), ("groupadd topicfs", ""), ("useradd topicfs", "user")],
)
def test_a_user_of_this_name_is_the_administrators(fresh, packages, tmp_path, made, stays):
    """The package can be installed if a user or group `topicfs` exists.

    A purge removes the user `topicfs` only if the package made it.
    """
    script = f"""set -eu
        {made}
        dpkg --install /packages/topicfs_*.deb > /dev/null
        stat --format %U /var/lib/topicfs
        dpkg --purge topicfs > /dev/null
        ! getent passwd topicfs > /dev/null || echo user
    """
    assert ["topicfs", stays] == [*inside(fresh, tmp_path, packages, script), ""][:2]


HOSTILE = [
    "log-file=/etc/cron.d/mine",
    "config=/etc/shadow",
    "config=/srv/settings",
    "client-config=/etc/shadow",
    "schema-dir=/root",
    "without=/root",
    "allow-other",
    "metrics=80",
    "partitioner=evil:evil",
    "suid,dev,allow-other",
    "fsname=/,subtype=ext4",
    "--config=/etc/shadow",
    "acks=all\\n-o",
    "\\033[2J",
]
"""Options with which a user could read, write or claim what belongs to others."""
AS_ANOTHER = r"""
ln -sf /proc/self/mounts /etc/mtab
mkdir -m 777 /srv/theirs && cd /srv/theirs
echo 'import pathlib; pathlib.Path("/srv/theirs/imported").touch()' > evil.py
(umask 077; echo a.secret=yes > /srv/settings)
theirs() { setpriv --reuid 4321 --regid 4321 --clear-groups "$@"; }
useradd --no-create-home --uid 4321 they
theirs mkdir mnt
while read -r option; do
    status=0
    theirs mount.topicfs /srv/theirs/data /srv/theirs/mnt -o "$(printf -- "$option")" > said 2>&1 || status=$?
    grep -q ' /srv/theirs/mnt ' /proc/self/mounts && echo "mounted by $option" && theirs topicfs umount /srv/theirs/mnt
    grep -q -e root: -e secret -e "$(printf '\033')" said && cat said
    echo "$status"
done < /options
ls /etc/cron.d/mine /srv/theirs/imported 2>&1 | grep -v 'No such file' || true
theirs mount.topicfs /srv/theirs/data /usr 2> /dev/null || echo "$?"
theirs mount.topicfs /srv/theirs/data /srv/theirs/mnt -o uid=0,gid=0
grep -o ' /srv/theirs/mnt fuse.topicfs rw,nosuid,nodev' /proc/self/mounts
ls /srv/theirs/mnt > /dev/null 2>&1 || echo "root stays outside"
theirs topicfs umount /srv/theirs/mnt
"""


def test_hostile_options_are_refused(fresh, packages, tmp_path):
    """Hostile options are refused and reveal no private file; allowed mounts are nosuid, nodev and the user's own."""
    (tmp_path / "options").write_text("".join(f"{option}\n" for option in HOSTILE))
    script = f"{INSTALLED} > /dev/null\n{FUSE}\n{AS_ANOTHER}"
    done = run_inside(
        fresh(NEEDED),
        tmp_path / "changes",
        script.replace("set -eu", "set -u"),
        shared={packages: "/packages", tmp_path / "options": "/options"},
    )
    *refusals, usr, mounted, outside = done.stdout.splitlines()
    assert {"1", "32"} == set(refusals), done.stdout + done.stderr
    assert len(HOSTILE) == len(refusals)
    assert "32" == usr
    assert (" /srv/theirs/mnt fuse.topicfs rw,nosuid,nodev", "root stays outside") == (mounted, outside)
