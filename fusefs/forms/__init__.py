"""Forms, one for each suffix: each form renders records as text, and parses such text into records.

The forms are plain lines of values (`log`), key TAB value (`log.kv`), one JSON object per line (`log.json`), and the
raw batches (`log.batch`). A form works on columns of records and bytes of text. It knows nothing of files, offsets in
a log or the kernel. The loops over lines are compiled.
"""

from topicfs.fusefs.forms.batches import BATCH
from topicfs.fusefs.forms.decoder import decoder_of
from topicfs.fusefs.forms.form import Form, FormError, LineParser, WritableForm
from topicfs.fusefs.forms.json_lines import JSON
from topicfs.fusefs.forms.kv import KV
from topicfs.fusefs.forms.values import VALUES

FORMS: tuple[WritableForm, ...] = (VALUES, KV, JSON)
"""All forms of lines; the plain form comes first."""

VIEW_FORMS: tuple[WritableForm, ...] = (*FORMS, BATCH)
"""All forms in which a log is shown."""

DECODED_SUFFIXES = (".avro.json", ".proto.json", ".jsonschema.json")
"""Suffixes of forms that decode payloads by their schemas (`fusefs.forms.decoded`); a mount makes these forms."""

LINE_SUFFIXES = (*(form.suffix for form in FORMS), *DECODED_SUFFIXES)
"""Suffixes of all forms of lines."""

SUFFIXES = (*DECODED_SUFFIXES, *(form.suffix for form in VIEW_FORMS if form.suffix))
"""All nonempty suffixes. A suffix that ends with another suffix precedes it, so that the longest match wins."""

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
    "LineParser",
    "WritableForm",
    "by_suffix",
    "decoder_of",
]


def by_suffix(suffix: str) -> WritableForm:
    """Return the form for a file name's suffix (`""`, `.kv`, `.json`, `.batch`). Raises KeyError for other suffixes."""
    for form in VIEW_FORMS:
        if form.suffix == suffix:
            return form
    raise KeyError(suffix)
