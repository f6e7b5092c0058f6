"""The C side of memoryview."""

from typing import Any

def PyMemoryView_GET_BUFFER(view: memoryview, /) -> Any: ...
