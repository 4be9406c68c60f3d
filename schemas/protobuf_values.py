"""Decodes values in Protobuf.

A registry has a schema as it was registered: the text of a .proto file, which protoc compiles (Java's
serializers send that), or the compiled file in base64 (Python's do). Messages become JSON by Protobuf's
own rules, with the names of the schema, and with the fields that have their default value.

protoc is C++ and writes its errors to descriptor 2, which is led into a file meanwhile; and what others
write may be nested so deeply that it ends the process. So the broker leaves it to its decoding process
(`schemas/decoding_child.py`). A job of Spark uses it in its own processes: it ends alone, and its
schemas are those of a registry that its user names.
"""

from __future__ import annotations

import errno
import importlib
import os
import tempfile
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from schemas.outcomes import BadValue, NotInstalled, UnsupportedSchema
from schemas.schema import Named, Schema
from schemas.wire_header import message_path

MAIN = "kompakt-schema.proto"
"""The name of the file that nobody imports."""
NAME_ERRORS = frozenset(
    {errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.EINVAL, errno.ELOOP}
)
"""Errors of a name, and not of the disk."""
OWN_FOLDER = "google/protobuf/"
"""The imports that the library brings along."""


def protobuf_decoder(schema: Schema) -> Callable[[bytes], bytes]:
    """Returns the function that decodes values of a schema to JSON.

    Raises:
        UnsupportedSchema: the schema is broken, or imports what the registry does not have.
        NotInstalled: the schema is text, and there is no protoc.
    """
    messages = Messages(compiled(schema))

    def decode(data: bytes) -> bytes:
        return msgspec.json.encode(messages.read(data)[1])

    return decode


def compiled(schema: Schema) -> bytes:
    """Returns the compiled files of a schema, as a serialized FileDescriptorSet.

    Raises:
        UnsupportedSchema: the schema is broken, or imports what the registry does not have.
        NotInstalled: the schema is text, and there is no protoc.
    """
    try:
        files = FileDescriptorSet(file=_files_of(schema)).SerializeToString()
        Messages(files)
    except (TypeError, KeyError, DecodeError) as error:
        raise UnsupportedSchema(f"it is no Protobuf schema: {error}") from error
    return bytes(files)


class Messages:
    """The messages of a compiled schema."""

    __slots__ = ("_messages", "_pool")

    def __init__(self, files: bytes) -> None:
        """Args: files: as `compiled` returns them. Raises TypeError, KeyError, DecodeError."""
        self._pool = DescriptorPool()
        for file in FileDescriptorSet.FromString(files).file:
            self._pool.Add(file)
        main = self._pool.FindFileByName(MAIN)
        self._messages = list(main.message_types_by_name.values())

    @property
    def first(self) -> Descriptor:
        """The first message of the file. Raises UnsupportedSchema if there is none."""
        if not self._messages:
            raise UnsupportedSchema("it has no message")
        return self._messages[0]

    def read(self, data: bytes) -> tuple[Descriptor, dict[str, Any]]:
        """Returns which message a value is, and its fields by the JSON mapping. Raises BadValue."""
        path, at = message_path(data)
        descriptor = _message_at(self._messages, path)
        message = GetMessageClass(descriptor)()
        try:
            message.ParseFromString(data[at:])
            found: dict[str, Any] = json_format.MessageToDict(
                message,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
                descriptor_pool=self._pool,
            )
        except (DecodeError, json_format.Error, ValueError, TypeError) as error:
            raise BadValue(f"it is no {descriptor.full_name}: {error}") from error
        return descriptor, found


def _message_at(messages: list[Descriptor], path: tuple[int, ...]) -> Descriptor:
    """Returns the message to which indexes lead. Raises BadValue.

    Clients number the messages inside another one differently if that has maps: in a compiled file each
    map has a message of its own, which Java does not count. What they disagree about is not decoded.
    """
    if path[0] not in range(len(messages)):
        raise BadValue(f"its schema has no message {path[0]}")
    found = messages[path[0]]
    for index in path[1:]:
        nested = list(found.nested_types)
        written = [each for each in nested if not each.GetOptions().map_entry]
        if index not in range(len(written)):
            raise BadValue(f"{found.full_name} has no message {index} inside it")
        if written[index] is not nested[index]:
            raise BadValue(
                f"clients number the messages inside {found.full_name} differently, because of its maps"
            )
        found = nested[index]
    return found


def _files_of(schema: Schema) -> Iterator[FileDescriptorProto]:
    """Yields the compiled files of a schema, each after those that it imports."""
    named = [*schema.references, Named(MAIN, schema.text)]
    compiled = [(each.name, _compiled(each.text)) for each in named]
    found = [(name, file) for name, file in compiled if file is not None]
    if not found:
        yield from _compile(named)
        return
    if len(found) < len(compiled):
        raise UnsupportedSchema(
            "a part of the schema is registered as text, and another one as a compiled file"
        )
    yield from _own_files(file for _, file in found)
    for name, file in found:
        file.name = name
        yield file


def _compiled(text: str) -> FileDescriptorProto | None:
    """Returns the compiled file that a text is in base64; None if it is the text of a .proto file."""
    try:
        return FileDescriptorProto.FromString(b64decode(text, validate=True))
    except (ValueError, DecodeError):
        return None


def _own_files(files: Iterable[FileDescriptorProto]) -> Iterator[FileDescriptorProto]:
    """Yields the files of the library that others import. Those import nothing else but each other."""
    wanted = {name for file in files for name in file.dependency if name.startswith(OWN_FOLDER)}
    seen = set[str]()

    def with_imports(name: str) -> Iterator[FileDescriptorProto]:
        if name in seen:
            return
        seen.add(name)
        module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
        try:
            descriptor = importlib.import_module(module).DESCRIPTOR
        except ImportError as error:
            raise UnsupportedSchema(f"it imports {name}, which does not exist") from error
        file = FileDescriptorProto.FromString(descriptor.serialized_pb)
        for each in file.dependency:
            yield from with_imports(each)
        yield file

    for name in sorted(wanted):
        yield from with_imports(name)


def _compile(named: list[Named]) -> list[FileDescriptorProto]:
    """Returns what protoc makes of texts. Raises UnsupportedSchema, NotInstalled."""
    try:
        from grpc_tools import protoc
    except ImportError as error:
        raise NotInstalled("the text of a Protobuf schema needs grpcio-tools") from error
    with tempfile.TemporaryDirectory() as scratch:
        folder, output = Path(scratch, "files"), Path(scratch, "compiled")
        for each in named:
            _write(folder, each)
        own = Path(protoc.__file__).parent / "_proto"
        command = ["protoc", f"-I{folder}", f"-I{own}", f"-o{output}", "--include_imports", MAIN]
        with tempfile.TemporaryFile() as errors:
            with _stderr_in(errors):
                status = protoc.main(command)
            if status != 0:
                errors.seek(0)
                said = errors.read(1000).decode(errors="replace").strip()
                raise UnsupportedSchema(f"protoc refuses the schema: {said}")
        return list(FileDescriptorSet.FromString(output.read_bytes()).file)


def _write(folder: Path, named: Named) -> None:
    """Write a file below a folder. Raises UnsupportedSchema for a name that leads elsewhere."""
    path = folder / named.name
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise UnsupportedSchema(f"it imports {named.name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(named.text, "utf-8")
    except ValueError as error:
        raise UnsupportedSchema(f"it imports {named.name[:100]!r}: {error}") from error
    except OSError as error:
        if error.errno not in NAME_ERRORS:
            raise
        raise UnsupportedSchema(f"it imports {named.name[:100]!r}: {error}") from error


@contextmanager
def _stderr_in(file: IO[bytes]) -> Iterator[None]:
    """Lead what C++ code writes as errors into a file."""
    kept = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
