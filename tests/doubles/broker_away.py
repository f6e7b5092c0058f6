"""A broker that goes and comes back, in each of the ways in which they do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from testing.broker.broker import Broker


@contextmanager
def back_again(*brokers: Broker) -> Iterator[None]:
    """A block that may stop or kill brokers; however it ends, those that do not run then are started."""
    with ExitStack() as stack:
        for broker in reversed(brokers):
            stack.callback(lambda broker=broker: broker.running or broker.start())
        yield


@contextmanager
def away(broker: Broker, how: str) -> Iterator[None]:
    """A block in which a broker is `stopped`, `killed`, `standing still` or `cut off`, and leads nothing."""
    if how in {"standing still", "cut off"}:
        with broker.paused() if how == "standing still" else broker.cut_off():
            yield
        return
    with back_again(broker):
        broker.stop() if how == "stopped" else broker.kill()
        yield
