"""The C side of array."""

from array import array
from typing import Any

def clone(template: array[Any], length: int, *, zero: bool) -> array[Any]: ...
