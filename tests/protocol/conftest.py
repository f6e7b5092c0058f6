"""Kafka's jars, which have the definitions of all messages."""

from __future__ import annotations

import pytest

from testing.broker.libraries import Java, UnavailableError, find_java


@pytest.fixture(scope="session")
def java() -> Java:
    """Skips, with the reason in one line, where Java or the jars cannot be had."""
    try:
        return find_java()
    except UnavailableError as error:
        pytest.skip(f"no jars of Kafka: {error}")
