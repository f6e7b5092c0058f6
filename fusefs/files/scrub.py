"""The file `@scrub`. Writing `start` begins a scrub of everything; reading shows the state of the last one."""

from __future__ import annotations

from topicfs.fusefs.allowance import leave_event_loop
from topicfs.fusefs.appending.targets import LineTarget, word_target
from topicfs.fusefs.files.text_file import TextFile
from topicfs.storage.messages import printable


class ScrubFile(TextFile):
    """The progress of the scrub, and what it found."""

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
        return word_target(self.path, "start", "to scrub everything", scrubbing.start)
