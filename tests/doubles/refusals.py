"""The error codes of requests that a coordinator refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from topicfs.coordination.groups.requests import Code, RequestError


def refusal(ask: Callable[..., object], *arguments: object, **how: object) -> Code:
    """Call `ask`, which must raise RequestError; return its code."""
    with pytest.raises(RequestError) as refused:
        ask(*arguments, **how)
    return refused.value.code
