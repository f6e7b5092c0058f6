"""Forms, one for each suffix: each renders records as text, and parses such text into records.

Plain lines of values (`log`), key TAB value (`log.kv`), one JSON object a line (`log.json`), and no text at all but
the batches themselves (`log.batch`). A form knows columns of records and bytes of text; nothing of files, offsets in
a log or the kernel. The loops over lines are compiled.
"""

from topicfs.fusefs.forms.batches import BATCH
from topicfs.fusefs.forms.decoder import decoder_of
from topicfs.fusefs.forms.form import Form, FormError
from topicfs.fusefs.forms.json_lines import JSON
from topicfs.fusefs.forms.kv import KV
from topicfs.fusefs.forms.values import VALUES

FORMS: tuple[Form, ...] = (VALUES, KV, JSON)
"""Every form of lines, the plain one first."""

VIEW_FORMS: tuple[Form, ...] = (*FORMS, BATCH)
"""Everything a log is shown as."""

DECODED_SUFFIXES = (".avro.json", ".proto.json", ".jsonschema.json")
"""Suffixes of the forms of lines that show payloads decoded by their schemas (`fusefs.forms.decoded`), which a mount makes."""

LINE_SUFFIXES = (*(form.suffix for form in FORMS), *DECODED_SUFFIXES)
"""Suffixes of all forms of lines."""

SUFFIXES = (*DECODED_SUFFIXES, *(form.suffix for form in VIEW_FORMS if form.suffix))
"""Suffixes of names that mean another form than the plain one; one that ends with another one stands before it."""

__all__ = [
    "BATCH",
    "DECODED_SUFFIXES",
    "FORMS",
    "JSON",
    "KV",
    "LINE_SUFFIXES",
    "SUFFIXES",
    "VALUES",
    "VIEW_FORMS",
    "Form",
    "FormError",
    "by_suffix",
    "decoder_of",
]


def by_suffix(suffix: str) -> Form:
    """The form a file name's suffix asks for (`""`, `.kv`, `.json`, `.batch`); KeyError for any other."""
    for form in VIEW_FORMS:
        if form.suffix == suffix:
            return form
    raise KeyError(suffix)
