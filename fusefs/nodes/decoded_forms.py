"""The decoding of a mount: the forms that show payloads by their schemas, made when the first file in one is looked for.

What a file shows must stay as it is while it is open, and schemas come later than records. So a form is kept for as long
as nothing that was unknown to it may have become known, and then another one takes its place: in files opened from then on.
Who follows is given each record once, by the schemas that are known at that moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from topicfs.fusefs.allowance import leave_event_loop
from topicfs.fusefs.forms import DECODED_SUFFIXES, Form, by_suffix

if TYPE_CHECKING:
    from topicfs.fusefs.forms.decoded import DecodedLines
    from topicfs.schemas.catalog import SchemaCatalog

REFUSED_SECONDS = 1.0
MAX_REFUSED = 1000


class DecodedForms:
    """The decoding forms of one mount. Used in one thread at a time."""

    def __init__(self, open_catalog: Callable[[], SchemaCatalog] | None = None) -> None:
        """Decode by the catalog that `open_catalog` returns when it is needed; without it no schema is known."""
        self._open_catalog = open_catalog
        self._catalog: SchemaCatalog | None = None
        self._forms: dict[str, DecodedLines] = {}
        self._following: dict[str, DecodedLines] = {}
        self._refused: dict[tuple[int, str], float] = {}

    def form(self, suffix: str) -> Form:
        """Return the form of a suffix as it is now. Raises KeyError for none, MissingLibraryError."""
        return self._decoded(suffix) if suffix in DECODED_SUFFIXES else by_suffix(suffix)

    def renewed(self, form: Form) -> Form:
        """Return a form as it is now: for a file without a size, which is what it was opened as."""
        return self.form(form.suffix) if form.outdated else form

    def following(self, form: Form) -> Form:
        """Return the form for who is given each record once."""
        return self._decoded(form.suffix, lasting=False) if form.suffix in DECODED_SUFFIXES else form

    def refused(self, pid: int, path: str) -> bool:
        """Return whether a process has just been refused a file as outdated; if not, it is noted that it is refused now.

        Schemas may come so fast that the file is outdated again when the process comes with its next, and last, try.
        """
        now = time.monotonic()
        if now - self._refused.pop((pid, path), -REFUSED_SECONDS) < REFUSED_SECONDS:
            return True
        if len(self._refused) >= MAX_REFUSED:
            self._refused.clear()
        self._refused[pid, path] = now
        return False

    def writing(self, form: Form, topic: str) -> Form:
        if form.suffix not in DECODED_SUFFIXES:
            return form
        from topicfs.fusefs.forms.decoded import KINDS, EncodedLines
        from topicfs.schemas.payload_reader import PayloadReader, PayloadWriter

        kind, catalog = KINDS[form.suffix], self._opened()
        writer = partial(PayloadWriter, kind, catalog)
        return EncodedLines(form.suffix, PayloadReader(kind, catalog), topic, writer)

    def end(self) -> None:
        """Ask for schemas no more: the mount ends, and does not wait for a slow registry."""
        if self._catalog is not None:
            self._catalog.end()

    def _opened(self) -> SchemaCatalog:
        from topicfs.schemas.catalog import SchemaCatalog

        if self._catalog is None:
            self._catalog = SchemaCatalog(()) if self._open_catalog is None else self._open_catalog()
        return self._catalog

    def _decoded(self, suffix: str, *, lasting: bool = True) -> Form:
        forms = self._forms if lasting else self._following
        form = forms.get(suffix)
        if form is None or form.outdated:
            # Only here: most mounts and commands decode nothing.
            from topicfs.fusefs.forms.decoded import KINDS, DecodedLines
            from topicfs.schemas.catalog import check_libraries
            from topicfs.schemas.payload_reader import PayloadReader

            check_libraries(KINDS[suffix])
            form = DecodedLines(
                suffix, PayloadReader(KINDS[suffix], self._opened(), lasting=lasting), leave_event_loop
            )
            forms[suffix] = form
        return form
