"""SIGHUP: the daemon reads the settings of its engine again, and says what has changed."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from topicfs.coordination.engine import Engine
from topicfs.fusefs.reports import Reports
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.live_settings import differences
from topicfs.storage.errors import StorageError
from topicfs.storage.messages import reason_of

log = logging.getLogger("topicfs")


class SettingsReload:
    """Reads the settings again, and has the engine go on with them."""

    def __init__(
        self,
        rereads: Callable[[], EngineConfig] | None,
        engine: Engine,
        config: EngineConfig | None,
        reports: Reports,
        *,
        terminal: bool,
        managed: bool = False,
    ) -> None:
        """Prepare; `config` is what the engine was opened with, `terminal` says that the daemon may belong to one.

        `managed`: a service manager started the daemon; its SIGHUP is a reload, also where there is nothing to read.
        """
        self._rereads = rereads
        self._engine = engine
        self._config = config or EngineConfig()
        self._reports = reports
        self._had_terminal = terminal and _has_terminal()
        self._managed = managed

    @property
    def is_asked_for(self) -> bool:
        """True if SIGHUP now means the settings, and not that the daemon's terminal is gone."""
        reloads = self._managed or self._rereads is not None
        return reloads and (not self._had_terminal or _has_terminal())

    def reload(self) -> None:
        """Read and take over (blocking); settings that cannot be read change nothing, and the reason is reported."""
        if self._rereads is None:
            log.info("settings: nothing to read again: the mount was made without --config")
            return
        try:
            wanted = self._rereads()
            self._engine.reconfigure(wanted)
        except (StorageError, OSError) as error:
            self._reports.error("settings", f"as they were: {reason_of(error)}")
            return
        except Exception:
            # Whatever it is, the mount is worth more than other settings.
            log.exception("settings: unexpected")
            self._reports.error("settings", "could not be read again; the log has the traceback")
            return
        changes = list(differences(self._config, wanted))
        self._config = wanted
        for change in changes:
            log.info("settings: %s", change)
        if not changes:
            log.info("settings: read again, the same as before")


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
