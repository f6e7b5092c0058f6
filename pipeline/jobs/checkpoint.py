"""The progress of an incremental job, from the files of its checkpoint (no Spark is needed).

    CHECKPOINT/offsets/7    v1 · the batch's settings · a line a source: {"orders": {"0": 42}}
    CHECKPOINT/commits/7    batch 7 is done

Both formats, ours and that of Spark's Kafka connector, write a source's offsets in the same way.
"""

from __future__ import annotations

import json
from pathlib import Path

from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.source.query.offsets import StreamState, decode_stream_offset

NO_OFFSETS = "-"
"""The line of a source that has not begun."""


def offsets_done(checkpoint: Path) -> StreamState:
    """Return the next offset of each partition after the last batch that is done, and the topics' ids; none before the first.

    Raises PipelineError for files that are none of a checkpoint, OSError.
    """
    done = [int(one.name) for one in _files(checkpoint / "commits")]
    if not done:
        return StreamState({}, {})
    file = checkpoint / "offsets" / str(max(done))
    lines = file.read_text(encoding="utf-8").splitlines()[2:]
    found = StreamState({}, {})
    try:
        for line in lines:
            if line != NO_OFFSETS:
                source = decode_stream_offset(json.loads(line))
                found.offsets.update(source.offsets)
                found.topic_ids.update(source.topic_ids)
    except (ValueError, AttributeError) as error:
        raise PipelineError(f"{file}: not the offsets of a query: {error}") from None
    return found


def _files(directory: Path) -> list[Path]:
    return [one for one in directory.iterdir() if one.name.isdecimal()] if directory.is_dir() else []
