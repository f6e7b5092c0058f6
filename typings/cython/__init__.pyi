"""What the compiled modules use of Cython's pure-Python mode, typed as it behaves uncompiled.

Cython's own module is not marked as typed. A pointer is a view there, and C integers are Python's.
"""

import builtins
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias, TypeVar, overload

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Class = TypeVar("_Class", bound=type[Any])

compiled: bool

Py_ssize_t: TypeAlias = builtins.int
bint: TypeAlias = builtins.bool
int: TypeAlias = builtins.int
uint: TypeAlias = builtins.int
long: TypeAlias = builtins.int
double: TypeAlias = builtins.float
uchar: TypeAlias = builtins.int
longlong: TypeAlias = builtins.int
ulonglong: TypeAlias = builtins.int
p_char: TypeAlias = Any
p_uchar: TypeAlias = Any
p_const_uchar: TypeAlias = Any
void: TypeAlias = None
NULL: Any
p_longlong: TypeAlias = Any
p_void: TypeAlias = Any

def cfunc(function: _Function, /) -> _Function: ...
def inline(function: _Function, /) -> _Function: ...
def ccall(function: _Function, /) -> _Function: ...
def cclass(kind: _Class, /) -> _Class: ...
def final(kind: _Class, /) -> _Class: ...
def exceptval(value: object = ..., /, *, check: bool = ...) -> Callable[[_Function], _Function]: ...
@overload
def cast(kind: type[builtins.int], value: Any, /) -> builtins.int: ...
@overload
def cast(kind: Any, value: Any, /) -> Any: ...
@overload
def declare(kind: type[builtins.int], value: builtins.int, /) -> builtins.int: ...
@overload
def declare(kind: type[bytes], value: bytes, /) -> bytes: ...
def address(value: Any, /) -> Any: ...

class _Nogil(AbstractContextManager[None]):
    def __call__(self, function: _Function, /) -> _Function: ...
    def __exit__(self, *_: object) -> None: ...

nogil: _Nogil
