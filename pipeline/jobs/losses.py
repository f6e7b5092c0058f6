"""What a job says where its stream has lost records: Spark's page of traces as one line, with the job's own remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import StreamingQueryException

from pipeline.errors import DataLossError

OTHER_CHECKPOINT = "to bring what is there now, name another checkpoint"

_LOST = re.compile(
    r"^pipeline\.errors\.DataLossError: (?P<said>.*?)(; failOnDataLoss=false [^;]*)?$", re.MULTILINE
)


@contextmanager
def losses_told(remedy: str) -> Iterator[None]:
    """Raise a DataLossError with `remedy` where a query that ends in the block has lost records."""
    try:
        yield
    except StreamingQueryException as error:
        lost = _LOST.search(str(error))
        if lost is None:
            raise
        raise DataLossError(f"{lost['said']}; {remedy}") from error
