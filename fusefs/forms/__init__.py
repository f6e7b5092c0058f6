"""How records look as text, and how text becomes records: one form a suffix.

Plain lines of values (`log`), key TAB value (`log.kv`), one JSON object a line (`log.json`). A form knows columns
of records and bytes of text; nothing of files, offsets in a log or the kernel. The loops are compiled.
"""

from fusefs.forms.form import Form, FormError
from fusefs.forms.json_lines import JSON
from fusefs.forms.kv import KV
from fusefs.forms.values import VALUES

FORMS: tuple[Form, ...] = (VALUES, KV, JSON)
"""Every form, the plain one first."""

__all__ = ["FORMS", "JSON", "KV", "VALUES", "Form", "FormError", "by_suffix"]


def by_suffix(suffix: str) -> Form:
    """The form a file name's suffix asks for (`""`, `.kv`, `.json`); KeyError for any other."""
    for form in FORMS:
        if form.suffix == suffix:
            return form
    raise KeyError(suffix)
