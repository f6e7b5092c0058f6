"""Protobuf: schemas as source text or as a FileDescriptorProto in base64; messages become JSON by Protobuf's mapping.

`protoc` itself (a library in grpcio-tools) compiles source text, because the users of registries write their schemas
for `protoc`. It runs in a separate process, because unlimited recursion into nested options can crash it.
"""

from __future__ import annotations

import base64
import binascii
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from topicfs.schemas.codecs.codec import check_memory, guarded, json_text, library
from topicfs.schemas.frame import read_path
from topicfs.schemas.schema import MAX_DEPTH, Kind, PayloadSchema, SchemaError

MAX_FIELD_NAME = 512
"""Maximum length of the name of a field or of an enum value. In JSON, each element of a repeated field repeats these
names.
"""
PROTOC_SECONDS = 20.0
"""Maximum time that protoc may take for a schema."""
_PROGRAM = """
import ast, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.path[:] = ast.literal_eval(sys.argv[1])
from grpc_tools import protoc
sys.exit(protoc.main(["protoc", *sys.argv[2:]]))
"""
_PROTOC, _PROTOBUF = ("grpc_tools.protoc", "grpcio-tools"), "protobuf"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_IMPORT = re.compile(r'(?:^|[;}])\s*import\s+(?:public\s+|weak\s+)?"([^"\n]+)"\s*(?=;)')
_OWN = "topicfs-schema.proto"
_SMALLEST_ELEMENT = 2
_ELEMENT_BYTES = 400
"""Memory of an element of a repeated field, without the names of its fields."""
_USUAL_VALUE_NAME = 64
"""Characters of an enum value's name that are included in _ELEMENT_BYTES."""
_TEXTS = 3
"""Copies of a longer name in memory for each value: the name, the whole text, and the text as bytes."""


COMMON = {
    "confluent/meta.proto": """syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; repeated Rule rules = 4; }
message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
""",
    "confluent/type/decimal.proto": """syntax = "proto3";
package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
""",
}
"""Files that registries add to Protobuf's own; schemas of Kafka Connect import them without a reference."""


def imports_of(text: str) -> list[str]:
    """Return the paths that a source imports, except imports of Protobuf's own files and of COMMON."""
    return [
        path
        for path in _IMPORT.findall(_COMMENT.sub("", text))
        if not path.startswith("google/protobuf/") and path not in COMMON
    ]


class ProtobufCodec:
    """The codec of a Protobuf schema. See `SchemaCodec`."""

    def __init__(self, schema: PayloadSchema, needed: Mapping[str, PayloadSchema]) -> None:
        """Compile a schema; `needed` has its imports by path, each after its own imports.

        Raises SchemaError, MissingLibraryError.
        """
        files = _compiled(schema, needed)
        pool = library("google.protobuf.descriptor_pool", _PROTOBUF).DescriptorPool()
        for file in files:
            guarded(lambda file=file: pool.Add(file), "not a Protobuf schema")  # type: ignore[misc] # its default binds it
        self._own = files[-1]
        self._pool = pool
        self._longest = _longest(name for file in files for name in _fields(file, file.package, 0))
        longest_value = _longest(name for file in files for name in _enum_values(file, 0))
        if max(self._longest, longest_value) > MAX_FIELD_NAME:
            raise SchemaError(f"the name of a field or a value has more than {MAX_FIELD_NAME} characters")
        self._bytes_of_a_value = _TEXTS * max(longest_value - _USUAL_VALUE_NAME, 0)
        self._classes: dict[tuple[int, ...], Any] = {}

    def decode(self, message: bytes, path: bytes | None) -> bytes:
        steps, content = self._divided(message, path)
        most = len(content) // _SMALLEST_ELEMENT * (_ELEMENT_BYTES + self._longest)
        check_memory(most + len(content) * self._bytes_of_a_value)
        json_format = library("google.protobuf.json_format", _PROTOBUF)
        found = self._class_at(steps)
        value = guarded(
            lambda: json_format.MessageToDict(found.FromString(content), descriptor_pool=self._pool),
            "does not follow its schema",
        )
        return json_text(value)

    def encode(self, value: object) -> bytes:
        """See `SchemaCodec`: encodes a message of the first type in the file."""
        json_format = library("google.protobuf.json_format", _PROTOBUF)
        if not isinstance(value, dict):
            raise SchemaError(f"{value!r:.60} is not a JSON object, as a message must be")
        made = self._class_at((0,))()
        guarded(
            lambda: json_format.ParseDict(
                value, made, descriptor_pool=self._pool, max_recursion_depth=MAX_DEPTH
            ),
            "does not follow its schema",
        )
        return b"\0" + guarded(lambda: bytes(made.SerializeToString(deterministic=True)), "not a message")

    def _divided(self, message: bytes, path: bytes | None) -> tuple[tuple[int, ...], bytes]:
        try:
            if path is not None:
                return (read_path(path, MAX_DEPTH)[0] if path else (0,)), message
            steps, end = read_path(message, MAX_DEPTH)
        except ValueError as error:
            raise SchemaError(str(error)) from None
        return steps, message[end:]

    def _class_at(self, steps: tuple[int, ...]) -> Any:
        found = self._classes.get(steps)
        if found is None:
            types, names = self._own.message_type, []
            for step in steps:
                if not 0 <= step < len(types):
                    raise SchemaError(f"the schema has no type at {'.'.join(map(str, steps))}")
                names.append(types[step].name)
                types = types[step].nested_type
            full = ".".join(filter(None, (self._own.package, *names)))
            factory = library("google.protobuf.message_factory", _PROTOBUF)
            found = guarded(
                lambda: factory.GetMessageClass(self._pool.FindMessageTypeByName(full)), "not a Protobuf type"
            )
            self._classes[steps] = found
        return found


def _longest(names: Iterable[str]) -> int:
    return max(map(len, names), default=0)


def _types_in(scope: Any, depth: int) -> Any:
    """Return the message types in a file or a message type. Raises SchemaError if they are nested too deeply."""
    if depth > MAX_DEPTH:
        raise SchemaError(f"more than {MAX_DEPTH} levels of messages")
    return scope.nested_type if depth else scope.message_type


def _fields(scope: Any, path: str, depth: int) -> Iterator[str]:
    """Yield the names of all fields in JSON; an extension has its full name in brackets."""
    yield from (f"[{path}.{extension.name}]" for extension in scope.extension)
    for one in _types_in(scope, depth):
        yield from (field.json_name or field.name for field in one.field)
        yield from _fields(one, f"{path}.{one.name}", depth + 1)


def _enum_values(scope: Any, depth: int) -> Iterator[str]:
    yield from (value.name for enum in scope.enum_type for value in enum.value)
    for one in _types_in(scope, depth):
        yield from _enum_values(one, depth + 1)


def _compiled(schema: PayloadSchema, needed: Mapping[str, PayloadSchema]) -> list[Any]:
    """Return the file descriptors of a schema and of its imports; the schema's own descriptor is the last."""
    serialized = _serialized(schema.text)
    if serialized is None:
        return _by_protoc(schema, needed)
    files: dict[str, Any] = {}
    for name, one in needed.items():
        part = _serialized(one.text)
        found = [part] if part is not None else _by_protoc(one, {})
        found[-1].name = name
        files.update({file.name: file for file in found})
    for name in serialized.dependency:
        if name not in files:
            files.update({file.name: file for file in _well_known(name)})
    return [*files.values(), serialized]


def _serialized(text: str) -> Any:
    """Parse a FileDescriptorProto in base64; None if the text is source."""
    descriptors = library("google.protobuf.descriptor_pb2", _PROTOBUF)
    if any(mark in text for mark in '{};"'):
        return None
    try:
        data = base64.b64decode(text.encode(), validate=True)
        return descriptors.FileDescriptorProto.FromString(data) if data else None
    except (ValueError, binascii.Error):
        return None
    except Exception as error:  # noqa: BLE001 - DecodeError, whose module is that of the library
        raise SchemaError(f"not a FileDescriptorProto in base64: {error!s:.200}") from None


def _well_known(name: str) -> list[Any]:
    if not re.fullmatch(r"google/protobuf/\w+\.proto", name):
        return []
    return _by_protoc(PayloadSchema(Kind.PROTOBUF, f'syntax = "proto3"; import "{name}";'), {})[:-1]


def _by_protoc(schema: PayloadSchema, needed: Mapping[str, PayloadSchema]) -> list[Any]:
    """Compile source; return the descriptors of its imports, then its own descriptor."""
    protoc = library(*_PROTOC)
    descriptors = library("google.protobuf.descriptor_pb2", _PROTOBUF)
    known = Path(str(protoc.__file__)).parent / "_proto"
    name = _OWN if schema.number is None else f"schema-{schema.number}.proto"
    with tempfile.TemporaryDirectory(prefix="topicfs-protoc-") as made:
        folder, result = Path(made, "sources"), Path(made, "result")
        sources = {**COMMON, **{path: one.text for path, one in needed.items()}, name: schema.text}
        for path, text in sources.items():
            file = folder / _checked(path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8", errors="replace")
        arguments = [
            f"-I{folder}", f"-I{known}", "--include_imports", f"--descriptor_set_out={result}", name,
        ]  # fmt: skip
        status, said = _run(arguments)
        if status or not result.exists():
            raise SchemaError(f"protoc: {said.replace(f'{folder}/', '').splitlines()[:1]!s:.300}")
        files = descriptors.FileDescriptorSet.FromString(result.read_bytes()).file
    return list(files)


def _run(arguments: list[str]) -> tuple[int, str]:
    """Run protoc in a separate process; return its status and its messages. Raises SchemaError if it takes too long."""
    command = [sys.executable, "-I", "-c", _PROGRAM, repr([path for path in sys.path if path]), *arguments]
    try:
        done = subprocess.run(  # noqa: S603 - this Python, and files that were just written
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROTOC_SECONDS,
            process_group=0,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SchemaError(f"protoc does not end within {PROTOC_SECONDS:.0f} s") from None
    if done.returncode < 0:
        raise SchemaError(f"protoc was ended by signal {-done.returncode}")
    return done.returncode, done.stderr.decode(errors="replace")


def _checked(path: str) -> PurePosixPath:
    """Return a path that stays within its folder. Raises SchemaError for any other path."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts or len(path) > 250 or "\0" in path:
        raise SchemaError(f"{path!r:.60} is not a valid import path")
    return pure
