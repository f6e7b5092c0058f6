"""Tests that Spark finds `format("topicfs")` where topicfs is installed: editable (`make build`), and from a wheel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from contextlib import closing

import pytest

from tests.doubles.engines import append_lines, read_lines
from tests.doubles.strangers import write_strangers
from tests.pipeline.conftest import ROOT, SETTINGS
from topicfs.replication import open_engine

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PACKAGES = ("topicfs", "pyspark_topicfs")
COMPILED = ("storage", "fusefs", "pipeline")
"""Folders with compiled modules, to which the package `topicfs/` has links."""
PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
from topicfs.pipeline.errors import raised_in

settings, data, statements = map(json.loads, sys.argv[1:])
builder = SparkSession.builder.master("local[1]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
rows = spark.read.format("topicfs").option("subscribe", "orders").load(data)
found = [rows.count()]
for statement in statements:
    try:
        found.append([list(map(str, row)) for row in spark.sql(statement).collect()])
    except Exception as error:
        raised = raised_in(str(error))
        found.append(": ".join(raised) if raised else str(error))
print(json.dumps(found))
"""


def outside():
    """Return the environment of a user, without the module paths that the session of other tests sets."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(python, folder, data, *statements):
    """Run `statements` in `folder`, where Spark finds the format only by its name; return what they print."""
    settings = SETTINGS | {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
    }
    arguments = map(json.dumps, (settings, str(data), statements))
    ran = subprocess.run(
        [python, "-c", PROGRAM, *arguments],
        cwd=folder,
        env=outside() | {"PYSPARK_PYTHON": str(python), "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == ran.returncode, ran.stderr[-4000:]
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.fixture
def data(tmp_path):
    """Make `orders` with two records."""
    with closing(open_engine(tmp_path / "data")) as engine:
        append_lines(engine.create_topic("orders").partitions()[0], "a\nb\n")
    return tmp_path / "data"


def lines(data):
    with closing(open_engine(data, read_only=True)) as engine:
        return read_lines(engine.partition("orders", 0))


def test_of_an_editable_install(tmp_path, data):
    """An editable install works from any directory without PYTHONPATH, even for SQL tables with options."""
    count = "SELECT count(*) FROM"
    found = run(
        sys.executable,
        tmp_path,
        data,
        f"CREATE TABLE t USING topicfs OPTIONS (path '{data}', subscribe 'orders', topic 'orders')",
        f"{count} t",
        "SELECT string(value), offset FROM t WHERE offset > 0",
        "INSERT INTO t (value) VALUES (X'63')",
        f"{count} t",
        f'{count} t WITH (endingOffsets = \'{{"orders":{{"0":1}}}}\')',
        f"CREATE TABLE u USING topicfs OPTIONS (subscribe 'orders', includeHeaders 'true') LOCATION '{data}'",
        "SELECT headers FROM u WHERE offset = 0",
        "CREATE TABLE named (value BINARY) USING topicfs OPTIONS (path '~/data', subscribe 'orders')",
        f"{count} named",
        "CREATE TEMPORARY VIEW v USING topicfs OPTIONS (path '~/data', subscribe 'orders')",
        f"{count} v",
        "DROP TABLE t",
    )
    told = found.pop(10)
    assert [2, [], [["2"]], [["b", "1"]], [], [["3"]], [["1"]], [], [["None"]], [], [], [["3"]], []] == found
    assert told.startswith("TOPICFS_INVALID_OPTION: this table's options are not known")
    assert ["a", "b", "c"] == lines(data)


def copied(folder):
    """Copy the sources of a wheel with their compiled modules, so that a build does not change the checkout."""
    folder.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "setup.py"):
        shutil.copy(ROOT / name, folder)
    for name in PACKAGES:
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.c")
        )
    # The generated C code. It is generated again only if a source is newer.
    shutil.copytree(ROOT / "build" / "cython", folder / "build" / "cython")
    # The compiled modules. They are compiled again only if they are older than a source, since gcc takes most
    # of the time.
    compiled = folder / "build" / f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    for module in (path for name in COMPILED for path in (ROOT / name).rglob("*.so")):
        target = compiled / "topicfs" / module.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(module, target)
    return folder


def test_of_a_wheel(tmp_path, data):
    """A wheel runs without the checkout, even if the program's directory has modules of the same names."""
    wheel = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-build-isolation",
        "--no-deps",
        "--quiet",
        "-w",
        str(tmp_path),
        ".",
    ]
    subprocess.run(wheel, cwd=copied(tmp_path / "sources"), check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (built,) = tmp_path.glob("topicfs-*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(packages)
        # Code that is compiled against the package needs the .pxd files that setup.py generates for named
        # numbers.
        assert "topicfs/storage/codec/binary/fields.pxd" in archive.namelist()
    # This line adds the path of Spark's packages. Python does not run the .pth files there, such as that of
    # the editable install.
    (packages / "needed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    write_strangers(packages)
    write_strangers(tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    where = [str(python), "-c", "import topicfs.spark, pyspark_topicfs; print(topicfs.spark.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=outside(), capture_output=True, text=True, check=True)
    assert found.stdout.startswith(str(packages))
    assert [2] == run(python, tmp_path, data)
