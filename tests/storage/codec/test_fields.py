"""Names for numbers: what C code takes from `fields.pxd` is what Python takes from `fields.py`."""

import re
from pathlib import Path

from topicfs.storage.codec.binary import fields
from topicfs.storage.codec.columns import Columns
from topicfs.storage.codec.headers import BatchHeader

PXD = Path(fields.__file__).with_suffix(".pxd")


def test_c_and_python_have_the_same_names_for_the_same_numbers():
    """Each name of one stands in the other, with the same number."""
    in_c = {
        name: int(value, 0)
        for name, value in re.findall(r"^    (\w+) = (\w+)$", PXD.read_text(), re.MULTILINE)
    }

    assert {name: value for name, value in vars(fields).items() if name.isupper()} == in_c


def test_a_row_is_the_fields_of_a_header_in_their_order():
    """`BatchHeader` is made of a row as it stands."""
    names = [name.upper() for name in BatchHeader._fields]

    assert list(range(fields.ROW_SIZE)) == [getattr(fields, name) for name in names]


def test_a_block_is_the_properties_of_columns_in_their_order():
    """Compiled readers find in a block what others find by a property."""
    names = [
        name for name in vars(Columns) if name.endswith(("offsets", "timestamps", "_positions", "_lengths"))
    ]

    assert list(range(fields.COLUMN_COUNT)) == [getattr(fields, name.upper()) for name in names]
