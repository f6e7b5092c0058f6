"""A fresh Debian in a folder, made once by debootstrap and kept in the user's cache; each test changes its own overlay.

Packages that a test needs are one more layer, which apt-get has made once.

The release is this machine's, or another release that is given by name. Every process that a script starts in the
folder ends with the script, because the script has its own mount and process namespaces.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from platformdirs import user_cache_path

TIMEOUT_SECONDS = 1500
"""Timeout for making a Debian tree. This takes three minutes on a slow network, and longer on a busy machine."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where a script in a tree finds programs."""
_ENTER = """
set -eu
# This namespace has copies of all FUSE mounts. A copy would keep a mount alive after its user's umount.
awk '$3 ~ /^fuse/ { print $2 }' /proc/mounts | tac | while read -r other; do umount --lazy "$(printf %b "$other")" || true; done
mkdir -p "$changes/upper" "$changes/work" "$changes/root"
mount -t overlay overlay -o "lowerdir=$tree,upperdir=$changes/upper,workdir=$changes/work" "$changes/root"
mount --rbind /dev "$changes/root/dev"
mount -t proc proc "$changes/root/proc"
mount --bind /etc/resolv.conf "$changes/root/etc/resolv.conf"
while [ $# -gt 2 ]; do
    [ -d "$1" ] && mkdir -p "$changes/root$2"
    [ -d "$1" ] || install -D /dev/null "$changes/root$2"
    mount --bind "$1" "$changes/root$2"
    shift 2
done
exec chroot "$changes/root" /bin/bash -c "$1"
"""


class UnavailableError(Exception):
    """A Debian tree cannot be made here; the message is one line with the reason."""


def own_release() -> str:
    """Return the name of this machine's release, such as `bookworm`."""
    return platform.freedesktop_os_release().get("VERSION_CODENAME", "")


def debian(packages: Sequence[str] = (), release: str | None = None) -> Path:
    """Return a tree with a minimal system and `packages`, for `run_inside`; the caller must not change it.

    Raises UnavailableError if debootstrap is missing, or the packages cannot be fetched.
    """
    suite = release or own_release()
    if not packages:
        return _kept(suite, "", lambda folder: _bootstrap(suite, folder))
    bare = debian((), release)
    # A layer fits only the system on which it was made.
    made_of = " ".join(sorted(packages)) + (bare / "var/lib/dpkg/status").read_text()
    layer = _kept(f"layer-{suite}", made_of, lambda folder: _install(bare, packages, folder))
    return Path(f"{layer}:{bare}")


def _kept(name: str, made_of: str, make: Callable[[Path], Path]) -> Path:
    """Return a folder of the user's cache; `make` makes it, inside the folder that it gets."""
    fingerprint = hashlib.sha256(made_of.encode()).hexdigest()[:16]
    folder = user_cache_path("topicfs") / f"{name}-{platform.machine()}-{fingerprint}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetching-", dir=folder.parent) as beside:
        made = make(Path(beside))
        # All users must be able to read the folder, because it becomes /.
        made.chmod(0o755)
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # If it exists, another process has made the same tree in the meantime.
                raise
    return folder


def _bootstrap(suite: str, folder: Path) -> Path:
    if shutil.which("debootstrap") is None:
        raise UnavailableError("debootstrap is missing: install the package debootstrap")
    tree = folder / "tree"
    command = ["debootstrap", "--variant=minbase", suite, str(tree)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"debootstrap did not end in {TIMEOUT_SECONDS} seconds") from None
    if done.returncode:
        raise UnavailableError(f"debootstrap: {(done.stdout + done.stderr).splitlines()[-1:]}")
    for archive in (tree / "var/cache/apt/archives").glob("*.deb"):
        archive.unlink()
    return tree


def _install(bare: Path, packages: Sequence[str], folder: Path) -> Path:
    install = f"apt-get -q install --yes --no-install-recommends {' '.join(packages)} && apt-get clean"
    try:
        done = run_inside(bare, folder, f"apt-get -q update && {install}", timeout_seconds=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"apt-get did not end in {TIMEOUT_SECONDS} seconds") from None
    if done.returncode:
        raise UnavailableError(f"apt-get cannot install {' '.join(packages)}: {done.stderr.strip()[-300:]}")
    return folder / "upper"


def run_inside(
    tree: Path,
    changes: Path,
    script: str,
    *,
    shared: Mapping[Path, str] | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_seconds: float = 240,
) -> subprocess.CompletedProcess[str]:
    """Run a bash script in a tree as root; only root may call this.

    The script's changes are in `changes/upper` afterwards; a second script with the same folder continues from there.
    `tree` may be several folders separated by colons, the uppermost first. `shared` maps files and folders of this
    machine to paths in the tree.
    """
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
    binds = [word for outside, inside in (shared or {}).items() for word in (str(outside), inside)]
    return subprocess.run(
        [*command, "bash", "-c", _ENTER, "enter", *binds, script],
        env={
            "PATH": SYSTEM_PATH,
            "HOME": "/root",
            "LC_ALL": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
            **(environment or {}),
            "tree": str(tree),
            "changes": str(changes),
        },
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )
