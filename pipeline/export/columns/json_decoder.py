"""Decodes keys or values that are JSON, or become JSON: that of a registry, and Protobuf."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import TypeAlias

import pyarrow as pa

from pipeline.export.columns.decoded import Decoded
from pipeline.export.columns.json_objects import JsonObjects
from pipeline.export.columns.writers import Unread, Writers
from pipeline.offsets.cut import TableRefused
from pipeline.tables.payload_options import Encoding, PayloadFormat
from pipeline.tables.writer_schemas import lacks
from schemas.outcomes import BadValue
from schemas.schema import SchemaType
from schemas.wire_header import HEADER_BYTES

Text: TypeAlias = Callable[[bytes], bytes]
"""Returns the JSON of a key or a value. Raises Unread."""


class JsonDecoder:
    """Decodes objects of one struct. Any thread may call."""

    def __init__(self, encoding: Encoding, kind: pa.StructType, misfit: str) -> None:
        """Raises TableRefused: the struct cannot be read from JSON.

        Args:
            misfit: says of a value that it is no such object, as a clause.
        """
        self._objects = JsonObjects(kind, f"--{encoding.part}-schema")
        self._text = text_of(encoding)
        self._misfit = misfit
        self.shape = self._objects.shape

    def decode(self, data: Sequence[bytes | None]) -> Decoded:
        """Decode keys or values. Raises TableRefused: the registry does not answer."""
        texts, whys = texts_of(data, self._text)
        objects, bad = self._objects.decoded(texts)
        return Decoded(objects, {**whys, **dict.fromkeys(bad, self._misfit)})


def texts_of(
    data: Sequence[bytes | None], text: Text | None
) -> tuple[Sequence[bytes | None], dict[int, str]]:
    """Returns the JSON of keys or values, and why rows have none; None: they are JSON themselves."""
    if text is None:
        return data, {}
    found: list[bytes | None] = [None] * len(data)
    whys = {}
    for row, each in enumerate(data):
        try:
            found[row] = None if each is None else text(each)
        except Unread as error:
            whys[row] = str(error)
    return found, whys


def text_of(encoding: Encoding) -> Text | None:
    """Returns the function that makes JSON of a key or a value; None: it is JSON itself.

    Raises:
        TableRefused: the library that reads Protobuf is missing.
    """
    match encoding.format:
        case PayloadFormat.JSON_SCHEMA:
            return _registered_text(encoding)
        case PayloadFormat.PROTOBUF:
            return _message_text(encoding)
        case _:
            return None


def _registered_text(encoding: Encoding) -> Text:
    writers = Writers(encoding, str)

    def text(data: bytes) -> bytes:
        writers.of(data)
        return data[HEADER_BYTES:]

    return text


def _message_text(encoding: Encoding) -> Text:
    try:
        # Few exports need the library.
        from schemas.protobuf_rows import row_json
        from schemas.protobuf_values import Messages
    except ImportError as error:
        raise TableRefused(str(lacks(error.name, SchemaType.PROTOBUF))) from error

    writers = Writers(encoding, lambda compiled: Messages(b64decode(compiled)))

    def text(data: bytes) -> bytes:
        try:
            return row_json(writers.of(data), data, encoding.message)
        except BadValue as error:
            raise Unread(encoding.misfit) from error

    return text
