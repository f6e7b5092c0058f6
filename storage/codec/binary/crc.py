"""CRC-32C, the checksum of a record batch, from the package crc32c.

Only the package's extension module is loaded. The package itself imports argument and mail parsers for its command
and its version, which costs as much CPU time as `topicfs --help`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec


def _loaded() -> Callable[..., int]:
    package = find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    found = PathFinder.find_spec("crc32c._crc32c", list(places or ()))
    if found is None or found.loader is None:
        from crc32c import crc32c as of_package

        return of_package
    module = module_from_spec(found)
    found.loader.exec_module(module)
    function: Callable[..., int] = module.crc32c
    return function


crc32c = _loaded()
