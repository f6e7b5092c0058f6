"""The group of commands: one line a job."""

from __future__ import annotations

import click

from topicfs.commands.pipeline.aggregate import aggregate
from topicfs.commands.pipeline.archive import archive
from topicfs.commands.pipeline.replay import replay
from topicfs.commands.pipeline.report import report
from topicfs.commands.pipeline.restore import restore
from topicfs.commands.pipeline.verify import verify
from topicfs.examples import ExampleGroup
from topicfs.jobs.run import job_options

JOBS: tuple[click.Command, ...] = (archive, restore, replay, aggregate, verify, report)
"""In the order of the help."""


class _InOrder(ExampleGroup):
    """A group whose jobs are listed in the order of JOBS, which click would sort by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self.commands)


@click.group(
    cls=_InOrder,
    examples=(
        (
            "topicfs pipeline archive orders,clicks ./archive",
            "two topics to Parquet, by date; again: what came since",
        ),
        ("topicfs pipeline restore ./archive", "the archive back into its topics, offsets and times kept"),
        ("topicfs pipeline replay orders copy", "every record of a topic into another"),
        ("topicfs pipeline replay orders late --where \"key = 'late'\"", "some of them, chosen by SQL"),
        ("topicfs pipeline aggregate orders per-hour --window '1 hour'", "how many came in each hour"),
        ("topicfs pipeline verify", "every segment checked, by many tasks"),
        ("topicfs pipeline report", "a page of plots: report.html"),
    ),
)
def pipeline() -> None:
    """Run a job over whole topics with Spark, on this machine or, by --master, on a cluster.

    It needs the extra: pip install 'topicfs[spark]', and Java. A running daemon is not disturbed; what a job writes to
    topics goes through it.
    """


for job in JOBS:
    job.params.extend(job_options())
    pipeline.add_command(job)
