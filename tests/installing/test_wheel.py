"""Tests that the wheel installs on any Linux, and works in an environment with nothing but its dependencies."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.doubles.strangers import write_strangers
from tests.fusefs.mounted.conftest import is_mounted
from tests.installing.conftest import ROOT
from topicfs.commands.mount import NEEDS_PYFUSE3

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2700)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel that `make wheel` builds."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([ROOT / "scripts" / "wheel.sh", folder], check=True)
    (built,) = folder.glob("topicfs-*.whl")
    return built


@pytest.fixture(scope="module")
def plain(wheel, tmp_path_factory) -> Path:
    """The bin directory of an environment with the wheel and the locked versions of its dependencies.

    The environment also has other projects' packages that are named like topicfs's folders.
    """
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install(folder, str(wheel))
    (packages,) = folder.glob("lib/python*/site-packages")
    write_strangers(packages)
    return folder / "bin"


def install(environment: Path, *packages: str) -> None:
    pins = environment / "constraints.txt"
    pins.write_text(
        "\n".join(re.findall(r"(?m)^([a-z][\w.-]*==[\w.]+)", (ROOT / "requirements.lock").read_text()))
    )
    pip = [environment / "bin" / "python", "-m", "pip", "--quiet", "install", "--constraint", pins]
    subprocess.run([*pip, *packages], check=True)


def run(programs: Path, *words: str, at: Path, **more) -> subprocess.CompletedProcess[str]:
    """Run a command of the environment, without this checkout on its path."""
    environment = {
        name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "TOPICFS_DATA"}
    }
    return subprocess.run(
        [programs / words[0], *words[1:]],
        cwd=at,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        **more,
    )


def test_the_wheel_is_for_other_machines(wheel, tmp_path):
    """The wheel needs Debian 12's C library or an older one, and no module searches paths of the build machine."""
    version = re.search(r"manylinux_2_(\d+)_\w+\.whl$", wheel.name)
    assert version is not None
    assert 36 >= int(version[1])
    with zipfile.ZipFile(wheel) as archive:
        modules = [name for name in archive.namelist() if name.endswith(".so")]
        archive.extractall(tmp_path, modules)
    assert len(modules) > 10
    headers = ["readelf", "--dynamic", *modules]
    assert not re.search(
        "RPATH|RUNPATH",
        subprocess.run(headers, cwd=tmp_path, capture_output=True, text=True, check=True).stdout,
    )


def test_the_wheel_has_the_two_packages_alone(wheel):
    """The wheel installs only its two packages at the top level, so that it cannot conflict with other modules."""
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    assert {"topicfs", "pyspark_topicfs", "topicfs-0.1.0.dist-info"} == tops


def test_the_named_packages_are_those_of_the_install_page():
    """Without pyfuse3 `topicfs mount` names the same system packages as docs/install.md."""
    page = (ROOT / "docs" / "install.md").read_text()
    for distribution in ("Debian", "Fedora", "Arch", "Alpine"):
        row = re.search(rf"(?m)^\| {distribution}\b.* \| `(.*)` \|$", page)
        assert row is not None
        assert f"{distribution} {row[1]}" in NEEDS_PYFUSE3


def test_without_the_mount_everything_else_works(plain, tmp_path):
    """All commands except mount work without a compiler and FUSE."""
    assert "topicfs 0.1.0\n" == run(plain, "topicfs", "--version", at=tmp_path).stdout
    run(plain, "topicfs", "topics", "create", "orders", at=tmp_path)
    run(plain, "topicfs", "append", "orders/0", at=tmp_path, input="hello\n")
    assert "hello\n" == run(plain, "topicfs", "cat", "orders/0", at=tmp_path).stdout


def test_pytest_has_the_fixtures(plain, tmp_path):
    """pytest finds the fixtures of an installed topicfs."""
    install(plain.parent, "pytest")
    (tmp_path / "test_it.py").write_text(
        "def test_it(topicfs_server, topicfs_prefix):\n    assert topicfs_server.bootstrap_servers and topicfs_prefix\n"
    )
    assert "1 passed" in run(plain, "pytest", "-q", at=tmp_path).stdout


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_compressed_record_is_written_and_read(plain, tmp_path, codec):
    """The installed command writes and reads records compressed with each codec."""
    run(plain, "topicfs", "topics", "create", "orders", "--config", f"compression.type={codec}", at=tmp_path)
    text = "hello\n" * 100
    assert "" == run(plain, "topicfs", "append", "orders/0", at=tmp_path, input=text).stderr
    dumped = run(plain, "topicfs", "dump", "data/orders-0/00000000000000000000.log", at=tmp_path)
    assert f" compresscodec: {codec} " in dumped.stdout
    assert text == run(plain, "topicfs", "cat", "orders/0", at=tmp_path).stdout


def test_a_mount_without_its_library_says_what_to_install(plain, tmp_path):
    """Without pyfuse3 a mount prints one line with the packages to install on four families of Linux."""
    (tmp_path / "mnt").mkdir()
    for words in (("topicfs", "mount", "data", "mnt"), ("mount.topicfs", "data", "mnt")):
        done = run(plain, *words, at=tmp_path)
        assert 1 == done.stderr.count("\n")
        for word in ("pip install 'topicfs[mount]'", "libfuse3-dev", "fuse3-devel", "Arch", "Alpine"):
            assert word in done.stderr
        assert done.returncode in {1, 32}


@pytest.mark.fuse
def test_with_the_mount_it_mounts(wheel, plain, tmp_path):
    """With the extra `mount` the wheel mounts, programs append and read, and the wheel unmounts."""
    install(plain.parent, f"{wheel}[mount]")
    mountpoint = tmp_path / "mnt"
    mountpoint.mkdir()
    assert 0 == run(plain, "topicfs", "mount", "data", "mnt", at=tmp_path).returncode
    try:
        (mountpoint / "orders").mkdir()
        with (mountpoint / "orders/0/log").open("a") as log:
            log.write("hello\n")
        assert "hello\n" == (mountpoint / "orders/0/log").read_text()
    finally:
        run(plain, "topicfs", "umount", "mnt", at=tmp_path)
        # Uninstall the extra's packages, because other tests use the environment without them.
        subprocess.run(
            [plain / "python", "-m", "pip", "--quiet", "uninstall", "--yes", "pyfuse3"], check=True
        )
    assert not is_mounted(mountpoint)
