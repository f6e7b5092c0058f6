"""`@metrics`: what the daemon counts, in the text format of Prometheus."""

from __future__ import annotations

from topicfs.fusefs.allowance import leave_event_loop
from topicfs.fusefs.files.text_file import TextFile
from topicfs.fusefs.nodes.nodes import Attributes


class MetricsFile(TextFile):
    """The metrics as they are when the file is opened. stat(2) shows the size of the last time: it collects nothing."""

    __slots__ = ()

    def render(self) -> str:
        leave_event_loop()
        return self.context.metrics()

    def _renew(self) -> None:
        # Also while somebody has it open: one reader that hangs must not show all others what was.
        self._text = self.render().encode()

    def attributes(self) -> Attributes:
        return self._attributes(len(self._text), self.mtime_ns())
