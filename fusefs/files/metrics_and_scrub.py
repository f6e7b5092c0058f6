"""Small files of the mount as a whole: `@metrics` and `@scrub`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topicfs.fusefs.allowance import leave_event_loop
from topicfs.fusefs.files.text_file import FreshTextFile, TextFile
from topicfs.fusefs.nodes.nodes import Attributes
from topicfs.storage.messages import printable

if TYPE_CHECKING:
    from topicfs.fusefs.appending.targets import LineTarget


class MetricsFile(FreshTextFile):
    """`@metrics` in Prometheus's text format, collected at open; stat(2) shows the last collection's size."""

    __slots__ = ()

    def render(self) -> str:
        leave_event_loop()
        return self.context.metrics()

    def attributes(self) -> Attributes:
        return self._attributes(len(self._text), self.mtime_ns())


class ScrubFile(TextFile):
    """`@scrub`: progress and findings of the last scrub. Writing `start` begins a scrub of everything."""

    __slots__ = ()

    def render(self) -> str:
        leave_event_loop()
        scrubbing = self.context.engine.scrubber
        lines = [] if scrubbing is None else scrubbing.report()
        return "".join(f"{printable(line)}\n" for line in lines)

    def target(self) -> LineTarget | None:
        scrubbing = self.context.engine.scrubber
        if scrubbing is None:
            return None
        from topicfs.fusefs.appending.targets import word_target

        return word_target(self.path, "start", "to scrub everything", scrubbing.start)
