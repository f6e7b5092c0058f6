"""The parts of a table of settings: the row of a setting, and its values as text."""

from collections.abc import Mapping
from typing import Any, NamedTuple, get_type_hints

from topicfs.storage.config.kinds import ValueKind, read_value
from topicfs.storage.errors import InvalidConfigError
from topicfs.storage.messages import did_you_mean


class Synonym(NamedTuple):
    """A name of a setting in a `server.properties`. For a topic setting, it is the name of the broker's default."""

    name: str
    factor: int = 1
    """Factor by which the value is multiplied. A negative value means "none" in every unit, and is not multiplied."""


class SettingRow(NamedTuple):
    """A setting's row in the table, except its type and default."""

    kind: ValueKind
    unit: str
    meaning: str
    synonyms: tuple[Synonym, ...] = ()
    """Names in a `server.properties`; if a file has several of them, the one that is first in this tuple counts."""
    hidden: bool = False
    """True if the setting is only for tests; it is then not listed to users."""


def row(meaning: str, kind: ValueKind, unit: str, *names: str | Synonym, hidden: bool = False) -> SettingRow:
    """Return the row of a setting that has these `names` in a `server.properties`."""
    synonyms = tuple(name if isinstance(name, Synonym) else Synonym(name) for name in names)
    return SettingRow(kind, unit, meaning, synonyms, hidden)


class Setting(NamedTuple):
    """A setting, with its name, its default, and its row of the table."""

    name: str
    """Kafka's name, such as `retention.ms`."""
    field: str
    """The name of the class's field, such as `retention_ms`."""
    default: Any
    row: SettingRow

    def parse(self, text: str) -> Any:
        """Parse a value. The error InvalidConfigError has the name, the value, and the valid values."""
        return read_value(self.name, text, self.row.kind)

    def print(self, value: Any) -> str:
        return self.row.kind.print(value)

    def text_in(self, values: object) -> str:
        """Return the setting's value in `values`, an instance of the class whose fields the table describes."""
        return self.print(getattr(values, self.field))

    @property
    def default_text(self) -> str:
        return self.print(self.default)


def read_table(defaults: object) -> dict[str, Setting]:
    """Return the settings of a class's annotated fields, by Kafka's names. `defaults` is an instance of the class."""
    table = {}
    for field, annotation in get_type_hints(type(defaults), include_extras=True).items():
        name = field.replace("_", ".")
        (row,) = annotation.__metadata__
        table[name] = Setting(name, field, getattr(defaults, field), row)
    return table


def read_overrides(
    table: Mapping[str, Setting], overrides: Mapping[str, str], *, what: str
) -> dict[str, Any]:
    """Return the values of `overrides` by field. Raises InvalidConfigError for a bad value or an unknown name.

    `what`: the kind of setting, for the error about an unknown name: "no such group setting".
    """
    values = {}
    for name, text in overrides.items():
        if name not in table:
            raise InvalidConfigError(f"{name}: no such {what}{did_you_mean(name, table)}")
        values[table[name].field] = table[name].parse(text)
    return values
