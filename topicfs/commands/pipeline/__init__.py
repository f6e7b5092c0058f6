"""`topicfs pipeline`: jobs over whole topics, run by Spark.

One module for each job: its name, arguments and options; `group` lists them. What they share is in `topicfs/jobs/`.
"""

from __future__ import annotations

from topicfs.commands.pipeline.group import pipeline

__all__ = ["pipeline"]
