"""A broker that goes and comes back, in each of the ways in which they do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from testing.broker.broker import Broker


@contextmanager
def away(broker: Broker, how: str) -> Iterator[None]:
    """A block in which a broker is `stopped`, `killed`, `standing still` or `cut off`, and leads nothing."""
    if how in {"standing still", "cut off"}:
        with broker.paused() if how == "standing still" else broker.cut_off():
            yield
        return
    broker.stop() if how == "stopped" else broker.kill()
    yield
    broker.start()
