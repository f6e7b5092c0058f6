"""`topicfs pipeline` where Spark is not installed, and what it refuses before Spark is asked."""

from __future__ import annotations

import sys

import pytest

from topicfs.pipelining import _cause


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
@pytest.mark.parametrize("words", [("archive", "orders", "parquet"), ("replay", "orders", "copy")])
def test_without_the_extra_one_line_says_how_to_get_it(orders, monkeypatch, missing, words):
    """Everything else of the command works without."""
    monkeypatch.setitem(sys.modules, missing, None)
    if missing == "pyarrow":
        monkeypatch.setitem(sys.modules, "pyspark", None)
    ran = orders("pipeline", *words)
    assert (1, b"") == (ran.status, ran.output)
    assert ran.errors == b"topicfs: Spark is not installed here; get it with: pip install 'topicfs[spark]'\n"


def test_a_directory_that_is_none_is_told_before_spark_is_started(topicfs):
    """As by every other command."""
    ran = topicfs("pipeline", "replay", "orders", "copy")
    assert ran.status == 1
    assert b"no data directory there" in ran.errors


def test_help_names_the_jobs(topicfs):
    """Without Spark, too."""
    text = topicfs("pipeline", "--help").text
    assert "archive" in text
    assert "replay" in text


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("[TABLE_OR_VIEW_NOT_FOUND] no such thing\n  at line 1\n", "[TABLE_OR_VIEW_NOT_FOUND] no such thing"),
        (
            "[PYTHON_DATA_SOURCE_ERROR] Failed\n  File x\nstorage.errors.UnknownTopicError: t: no such topic\n",
            "t: no such topic",
        ),
    ],
)
def test_of_sparks_errors_one_line_is_told(text, cause):
    """Ours where there is one, else the first."""
    assert cause == _cause(text)
