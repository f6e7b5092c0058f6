"""`topicfs pipeline`: jobs over whole topics, run by Spark.

A module a job says what its command is called and takes; `group` lists them, `running` gives a job its session and
prints what it found, or the one line of Spark's errors that a person needs.
"""

from __future__ import annotations

from topicfs.pipelining.group import pipeline

__all__ = ["pipeline"]
