"""SIGHUP: the daemon reloads the settings of its engine, and reports what has changed."""

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

_LOGGER = logging.getLogger("topicfs")


class SettingsReload:
    """Reloads the settings and applies them to the engine."""

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
        """Reload settings with `rereads` for `engine`, which was opened with `config`.

        `terminal`: the daemon may belong to a terminal. `managed`: a service manager started the daemon, so SIGHUP
        always means a reload.
        """
        self._rereads = rereads
        self._engine = engine
        self._config = config or EngineConfig()
        self._reports = reports
        self._had_terminal = terminal and _has_terminal()
        self._managed = managed
        self.applied: Callable[[EngineConfig], None] = lambda _: None
        """Called with the settings after each reload."""

    @property
    def is_asked_for(self) -> bool:
        """True if SIGHUP now means a reload; False if it means that the daemon's terminal is gone."""
        reloads = self._managed or self._rereads is not None
        return reloads and (not self._had_terminal or _has_terminal())

    def reload(self) -> None:
        """Reload and apply the settings (blocking). Unreadable settings change nothing, and the reason is reported."""
        if self._rereads is None:
            _LOGGER.info("settings: nothing to reload: the mount has no --config")
            return
        try:
            wanted = self._rereads()
            self._engine.reconfigure(wanted)
            self.applied(wanted)
        except (StorageError, OSError) as error:
            self._reports.error("settings", f"not changed: {reason_of(error)}")
            return
        except Exception:
            # Keep the mount running, whatever failed.
            _LOGGER.exception("settings: unexpected")
            self._reports.error("settings", "could not be reloaded; the log has the traceback")
            return
        changes = list(differences(self._config, wanted))
        self._config = wanted
        for change in changes:
            _LOGGER.info("settings: %s", change)
        if not changes:
            _LOGGER.info("settings: reloaded, unchanged")


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
