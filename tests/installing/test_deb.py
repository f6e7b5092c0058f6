"""The Debian package: built here, installed in a fresh Debian, used, installed again and purged; nothing stays behind."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from testing.debian import run_inside
from tests.installing.conftest import ROOT

pytestmark = [pytest.mark.fuse, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(900)]

NEEDED = ("fuse3", "python3")
"""What the package depends on, and no more: a forgotten dependency would show."""
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
"""
DPKGS_OWN = re.compile(r"var/lib/dpkg/|var/log/|var/cache/|etc/ld\.so\.cache|dev/null")
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
    """A folder with the package, as `make deb` builds it."""
    folder = tmp_path_factory.mktemp("packages")
    subprocess.run([ROOT / "scripts" / "deb.sh", folder], check=True)
    return folder


def inside(fresh, changes: Path, packages: Path, script: str) -> list[str]:
    """What a script prints in a Debian; it must succeed and complain about nothing."""
    done = run_inside(fresh(NEEDED), changes, script, shared={packages: "/packages"})
    assert (0, "") == (done.returncode, done.stderr), done.stdout
    return done.stdout.splitlines()


def test_the_package_brings_all_that_belongs_to_the_command(fresh, packages, tmp_path):
    """Manual pages, completion, the unit, and what mount(8) calls."""
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


def test_it_is_used_and_leaves_nothing(fresh, packages, tmp_path):
    """By mount(8) and without a mount, as root; purged, what is left are the topics and dpkg's own lists."""
    said = inside(fresh, tmp_path, packages, f"{INSTALLED} > /dev/null\n{USED}")
    assert ["topicfs 0.1.0", "anna\thello", "0 anna hello", "orders", "gone"] == said
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
