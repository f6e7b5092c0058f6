"""The file `@scrub`. Writing `start` begins a scrub of everything; reading shows the state of the last one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topicfs.fusefs.allowance import leave_event_loop
from topicfs.fusefs.appending.targets import CommandTarget, LineTarget
from topicfs.fusefs.files.text_file import TextFile
from topicfs.storage.errors import InvalidConfigError
from topicfs.storage.messages import printable

if TYPE_CHECKING:
    from topicfs.storage.findings import ScrubOnDemand

START = "start"
LINE_BYTES = 64


class ScrubTarget(CommandTarget):
    """The target of the line that asks for a scrub."""

    max_record_bytes = LINE_BYTES

    def __init__(self, name: str, scrubbing: ScrubOnDemand) -> None:
        self.name = name
        self._scrubbing = scrubbing

    def check(self, lines: bytes) -> None:
        text = lines.decode("utf-8", "replace").split("\n")[-2].strip()
        if text != START:
            raise InvalidConfigError(f"{text}: `{START}` alone can be written, to scrub everything")

    def append(self, lines: bytes, *, durable: bool = False) -> None:
        """Begin a scrub; it goes on in a thread of the engine's."""
        del durable
        self.check(lines)
        self._scrubbing.start()


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
        return None if scrubbing is None else ScrubTarget(self.path, scrubbing)
