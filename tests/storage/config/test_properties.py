"""Tests of Java's properties format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicfs.storage.config.properties import PropertiesError, format_properties, parse_properties

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", {}),
        (b"# comment\n ! another\n\n \t\n", {}),
        (b"a=b", {"a": "b"}),
        (b"a = b ", {"a": "b "}),
        (b"a:b\r\nc d\re\n", {"a": "b", "c": "d", "e": ""}),
        (b"a==b", {"a": "=b"}),
        (b"a=b\\\n   c\\\r\n d\n", {"a": "bcd"}),
        (b"a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        (b"a=b\\\n#c\n", {"a": "b#c"}),
        (b"a=b\\", {"a": "b"}),
        (b"# no \\\na=b", {"a": "b"}),
        (b"a\\ b\\=c=d", {"a b=c": "d"}),
        (b"a=\\t\\n\\r\\f\\q\\u00e9", {"a": "\t\n\r\fqé"}),
        (b"a=\\ud83d\\ude00", {"a": "\U0001f600"}),
        (b"a=\xe9", {"a": "é"}),
        (b"a=1\na=2", {"a": "2"}),
    ],
)
def test_reading(data: bytes, expected: dict[str, str]) -> None:
    """Comments, separators, continued lines and escapes are parsed as by java.util.Properties."""
    assert expected == parse_properties(data)


@pytest.mark.parametrize("data", [b"a=\\u12", b"a=\\uzzzz", b"a=\\ud83d"])
def test_malformed_escapes_are_refused(data: bytes) -> None:
    """A malformed escape is refused."""
    with pytest.raises(PropertiesError):
        parse_properties(data)


def test_writing() -> None:
    """The file has a comment, the time as java.util.Date prints it, and the values with escapes."""
    written = format_properties({"a b": " c=d", "e": "f:é"}, comment="", written_at=1_795_233_807_000)
    assert b"#\n#Sat Nov 21 04:03:27 UTC 2026\na\\ b=\\ c\\=d\ne=f\\:\\u00E9\n" == written


@given(st.dictionaries(TEXTS, TEXTS))
def test_what_is_written_reads_back(values: dict[str, str]) -> None:
    """Any names and values are parsed as they were written."""
    assert values == parse_properties(format_properties(values))
