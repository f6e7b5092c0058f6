"""Finds the groups for a command: in the mount of the daemon that owns the directory, or in an engine opened here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from topicfs.data_directory import require_directories
from topicfs.fusefs.processes.signals import look
from topicfs.groups.engine import EngineGroups
from topicfs.groups.mount import MountGroups
from topicfs.groups.view import GroupAdmin
from topicfs.places import Place
from topicfs.storage.disk.lock import find_holder


def serving_mount(place: Place) -> Path | None:
    """Return the mount of the daemon that owns the directories; None if no mount of this user or root is visible."""
    # Import only here, because the module needs a machine with FUSE.
    from topicfs.fusefs.mounting.mountpoint import mountpoint_of

    for directory in place.directories:
        holder = find_holder(directory) if directory.is_dir() else None
        if holder is not None:
            daemon = look(holder.pid or 0)
            return mountpoint_of(holder.pid) if daemon and daemon.user in {0, os.geteuid()} else None
    return None


@contextmanager
def opened_groups(place: Place, *, writing: bool = False) -> Iterator[GroupAdmin]:
    """Open the groups; `writing` if they will be changed. Raises StorageError, OSError."""
    mountpoint = serving_mount(place)
    if mountpoint is not None:
        yield MountGroups(mountpoint)
        return
    if place.cluster is None:
        require_directories(place.directories)
    if writing:
        with place.opened_for_writing(through_mount="MOUNTPOINT/@groups") as engine:
            yield EngineGroups(engine)
    else:
        with place.opened() as engine:
            yield EngineGroups(engine)
