"""Brokers that are unavailable for a while: stopped, killed, paused or cut off from the network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from testing.broker.broker import Broker


@contextmanager
def back_again(*brokers: Broker) -> Iterator[None]:
    """Run a block that may stop or kill brokers; then restart the brokers that have ended, even after an error."""
    with ExitStack() as stack:
        for broker in reversed(brokers):
            stack.callback(lambda broker=broker: broker.running or broker.start())
        yield


@contextmanager
def away(broker: Broker, how: str) -> Iterator[None]:
    """Run a block while a broker is unavailable and therefore leads no partition.

    `how` is `stopped`, `killed`, `standing still` or `cut off`.
    """
    if how in {"standing still", "cut off"}:
        with broker.paused() if how == "standing still" else broker.cut_off():
            yield
        return
    with back_again(broker):
        broker.stop() if how == "stopped" else broker.kill()
        yield
