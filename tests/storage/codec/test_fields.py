"""Tests of the field numbers that compiled code and Python share."""

import re
import shutil
from pathlib import Path

import pytest

from tests.setup_functions import CONSTANTS, write_constants
from topicfs.fusefs.requests import wire
from topicfs.storage.codec.binary import fields
from topicfs.storage.codec.columns import Columns
from topicfs.storage.codec.headers import BatchHeader

MODULES = {Path(module.__file__).name: module for module in (fields, wire)}


@pytest.mark.parametrize("source", CONSTANTS)
def test_c_takes_the_names_and_the_numbers_of_the_module(source, tmp_path):
    """The generated .pxd file has the same constants as the module.

    The file is rewritten only if a constant changes, because a rewrite causes a compilation.
    """
    name = Path(source).name
    copied = tmp_path / name
    shutil.copy(Path(__file__).parents[3] / source, copied)
    made = copied.with_suffix(".pxd")
    write_constants(str(copied))
    in_c = {
        name: int(value) for name, value in re.findall(r"^    (\w+) = (\w+)$", made.read_text(), re.MULTILINE)
    }
    assert {name: value for name, value in vars(MODULES[name]).items() if name.isupper()} == in_c
    made.chmod(0o400)
    before = made.stat().st_mtime_ns
    write_constants(str(copied))
    assert before == made.stat().st_mtime_ns


def test_a_row_is_the_fields_of_a_header_in_their_order():
    """The columns of a header row are the fields of `BatchHeader`, in the same order."""
    names = [name.upper() for name in BatchHeader._fields]

    assert list(range(fields.ROW_SIZE)) == [getattr(fields, name) for name in names]


def test_a_block_is_the_properties_of_columns_in_their_order():
    """The columns of a block, which compiled readers use, are the properties of `Columns`, in the same order."""
    names = [
        name for name in vars(Columns) if name.endswith(("offsets", "timestamps", "_positions", "_lengths"))
    ]

    assert list(range(fields.COLUMN_COUNT)) == [getattr(fields, name.upper()) for name in names]
