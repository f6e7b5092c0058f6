"""Notifications of the kernel, which answer no request: it forgets attributes and names."""

from __future__ import annotations

import logging
import os
import struct
import threading
from contextlib import suppress
from queue import SimpleQueue

log = logging.getLogger("topicfs")

END_SECONDS = 5.0
"""Longest time that the end of a mount waits for a name being forgotten, which may itself wait for a request to be answered."""

_HEAD = struct.Struct("=IiQ")
"""Length, what is to be forgotten, and 0 in place of a request's id."""
_INODE = struct.Struct("=IiQQqq")
"""The same, node, and from where on its content is forgotten: not at all."""
_INVALIDATE_INODE, _INVALIDATE_ENTRY = 2, 3


class KernelNotifications:
    """The ways of telling the kernel to forget; names from a thread of its own, which ends before the session does."""

    def __init__(self) -> None:
        self.device = -1
        """The open /dev/fuse, once there is one."""
        self._names: SimpleQueue[tuple[int, bytes] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ended = False

    def forget_attributes(self, node_id: int) -> None:
        """Invalidate attributes alone: half a microsecond, and safe while a request is answered."""
        with suppress(OSError):  # ENOENT: it had forgotten already.
            os.write(self.device, _INODE.pack(_INODE.size, _INVALIDATE_INODE, 0, node_id, -1, 0))

    def forget_name(self, parent_id: int, name: str) -> None:
        """Invalidate a name, soon: it may have to wait for a request under way, which is answered meanwhile."""
        if self._ended:
            return
        self._names.put((parent_id, os.fsencode(name)))
        if self._thread is None:
            thread = threading.Thread(target=self._forget_names, name="forget-names", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # The system has no thread left: the next name tries again.
                log.warning("forgetting names cannot begin: %s", error)
            else:
                self._thread = thread

    def _forget_names(self) -> None:
        while (forgotten := self._names.get()) and not self._ended:
            parent_id, name = forgotten
            body = struct.pack("=QII", parent_id, len(name), 0) + name + b"\0"
            try:
                os.write(self.device, _HEAD.pack(_HEAD.size + len(body), _INVALIDATE_ENTRY, 0) + body)
            except OSError as error:
                # ENOENT, mostly; and whatever it still believes is over after its timeout.
                log.debug("%s: not forgotten: %s", forgotten, error)

    def end(self) -> None:
        """End the thread; no more notifications are sent to the kernel (blocking).

        Call this while requests are still answered. A notification waits in the kernel for a request on the same
        directory, so the thread ends only after that request has been answered.
        """
        self._ended = True
        self._names.put(None)
        if self._thread is not None:
            self._thread.join(END_SECONDS)
