"""Kafka's jars, which contain the definitions of all messages."""

from __future__ import annotations

import pytest

from testing.broker.libraries import Java, UnavailableError, find_java


@pytest.fixture(scope="session")
def java() -> Java:
    """Java and the jars; skips, with a one-line reason, if they are unavailable."""
    try:
        return find_java()
    except UnavailableError as error:
        pytest.skip(f"no jars of Kafka: {error}")
