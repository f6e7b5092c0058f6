"""The mount's forms that decode payloads by schemas, created when a file in such a form is first looked up.

The text of an open file must not change, but schemas may arrive after records. So each open file keeps its form. Once
an unknown schema may have become available, files opened later get a new form. Readers that follow get each record
once, decoded by the schemas known at that moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from topicfs.fusefs.allowance import leave_event_loop
from topicfs.fusefs.forms import DECODED_SUFFIXES, Form, LineParser, by_suffix

if TYPE_CHECKING:
    from topicfs.fusefs.forms.decoded import DecodedForm
    from topicfs.schemas.catalog import SchemaCatalog

REFUSAL_CACHE_SECONDS = 1.0
MAX_REFUSED = 1000


class DecodedForms:
    """The decoding forms of one mount. Not thread-safe."""

    def __init__(self, open_catalog: Callable[[], SchemaCatalog] | None = None) -> None:
        """`open_catalog` returns the catalog of schemas when it is first needed. If it is None, no schema is known."""
        self._open_catalog = open_catalog
        self._catalog: SchemaCatalog | None = None
        self._forms: dict[str, DecodedForm] = {}
        self._following: dict[str, DecodedForm] = {}
        self._refused: dict[tuple[int, str], float] = {}

    def form(self, suffix: str) -> Form:
        """Return the current form of a suffix. Raises KeyError for an unknown suffix, MissingLibraryError."""
        return self._decoded(suffix) if suffix in DECODED_SUFFIXES else by_suffix(suffix)

    def renewed(self, form: Form) -> Form:
        """Return the current form in place of `form`, which may be outdated. Only for a file whose size is not kept."""
        return self.form(form.suffix) if form.outdated else form

    def following(self, form: Form) -> Form:
        """Return the form for readers that get each record once, such as `follow`."""
        return self._decoded(form.suffix, lasting=False) if form.suffix in DECODED_SUFFIXES else form

    def refused(self, pid: int, path: str) -> bool:
        """Return whether an open of `path` by `pid` was refused just now; if not, record that it is refused now.

        An open is refused once if the file's schemas are outdated; the kernel then tries again, only once. Schemas may
        arrive so fast that the file is outdated at the second try too.
        """
        now = time.monotonic()
        if now - self._refused.pop((pid, path), -REFUSAL_CACHE_SECONDS) < REFUSAL_CACHE_SECONDS:
            return True
        if len(self._refused) >= MAX_REFUSED:
            self._refused.clear()
        self._refused[pid, path] = now
        return False

    def parser(self, suffix: str, topic: str) -> LineParser:
        """Return the parser of lines written to a topic. Raises KeyError for an unknown suffix, MissingLibraryError."""
        if suffix not in DECODED_SUFFIXES:
            return by_suffix(suffix)
        from topicfs.fusefs.forms.decoded import KINDS, SchemaParser
        from topicfs.schemas.catalog import check_libraries
        from topicfs.schemas.payload_reader import PayloadWriter

        check_libraries(KINDS[suffix])
        return SchemaParser(suffix, topic, partial(PayloadWriter, KINDS[suffix], self._opened()))

    def end(self) -> None:
        """Stop fetching schemas, so that the mount's end does not wait for a slow registry."""
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
            # Import only here: most mounts and commands decode nothing.
            from topicfs.fusefs.forms.decoded import KINDS, DecodedForm
            from topicfs.schemas.catalog import check_libraries
            from topicfs.schemas.payload_reader import PayloadReader

            check_libraries(KINDS[suffix])
            form = DecodedForm(
                suffix, PayloadReader(KINDS[suffix], self._opened(), lasting=lasting), leave_event_loop
            )
            forms[suffix] = form
        return form
