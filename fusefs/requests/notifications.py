"""Notifications to the kernel, which invalidate cached attributes and names."""

from __future__ import annotations

import logging
import os
import struct
import threading
from contextlib import suppress
from queue import SimpleQueue

from topicfs.fusefs.nodes.context import KernelCache

_LOGGER = logging.getLogger("topicfs")

NOTIFICATION_TIMEOUT_SECONDS = 5.0
"""How long the end of a mount waits for a notification. The kernel may hold a notification until a request is
answered.
"""

_HEAD = struct.Struct("=IiQ")
"""Length, code of the notification, and 0 instead of a request ID."""
_INODE = struct.Struct("=IiQQqq")
"""The header, the node ID, and a negative offset, so that the kernel keeps the cached content."""
_INVALIDATE_INODE, _INVALIDATE_ENTRY = 2, 3


class KernelNotifications(KernelCache):
    """Sends the notifications. A separate thread sends those about names; the thread ends before the mount does."""

    def __init__(self) -> None:
        self.device = -1
        """The descriptor of /dev/fuse, once it is open."""
        self._names: SimpleQueue[tuple[int, bytes] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ended = False

    def forget_attributes(self, node_id: int) -> None:
        """Invalidate only attributes (0.5 µs); never waits for a request."""
        with suppress(OSError):  # ENOENT: the attributes were not cached.
            os.write(self.device, _INODE.pack(_INODE.size, _INVALIDATE_INODE, 0, node_id, -1, 0))

    def forget_name(self, parent_id: int, name: str) -> None:
        """Let the thread invalidate a cached name. The kernel may delay this until the caller's request is answered."""
        if self._ended:
            return
        self._names.put((parent_id, os.fsencode(name)))
        if self._thread is None:
            thread = threading.Thread(target=self._forget_names, name="forget-names", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # No thread is available. The next call tries again.
                _LOGGER.warning("cannot start the thread that invalidates names: %s", error)
            else:
                self._thread = thread

    def _forget_names(self) -> None:
        while (forgotten := self._names.get()) and not self._ended:
            parent_id, name = forgotten
            body = struct.pack("=QII", parent_id, len(name), 0) + name + b"\0"
            try:
                os.write(self.device, _HEAD.pack(_HEAD.size + len(body), _INVALIDATE_ENTRY, 0) + body)
            except OSError as error:
                # The error is usually ENOENT (the name was not cached). Otherwise the cached name expires
                # after its timeout.
                _LOGGER.debug("%s: not invalidated: %s", forgotten, error)

    def end(self) -> None:
        """End the thread, and send no more notifications (blocking).

        Call this while requests are still answered. A notification waits in the kernel for a request on the same
        directory, so the thread ends only after that request has been answered.
        """
        self._ended = True
        self._names.put(None)
        if self._thread is not None:
            self._thread.join(NOTIFICATION_TIMEOUT_SECONDS)
        self.device = -1  # The descriptor's number may soon belong to another file.
