"""Brokers that are away for a while, in each way in which that can happen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from testing.broker.broker import Broker


@contextmanager
def back_again(*brokers: Broker) -> Iterator[None]:
    """In the block brokers may be stopped or killed; however it ends, those that do not run are started again."""
    with ExitStack() as stack:
        for broker in reversed(brokers):
            stack.callback(lambda broker=broker: broker.running or broker.start())
        yield


@contextmanager
def away(broker: Broker, how: str) -> Iterator[None]:
    """In the block a broker is `stopped`, `killed`, `standing still` or `cut off`, and leads no partition."""
    if how in {"standing still", "cut off"}:
        with broker.paused() if how == "standing still" else broker.cut_off():
            yield
        return
    with back_again(broker):
        broker.stop() if how == "stopped" else broker.kill()
        yield
