"""Decodes keys in JSON, alone or within {"schema": ..., "payload": the key} of Connect's converter.

A field that the schema lacks is an error: keys that differ in it would become one row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from pipeline.export.columns.ddl import read_columns
from pipeline.export.columns.decoded import Decoded
from pipeline.export.columns.json_decoder import text_of, texts_of
from pipeline.export.columns.json_objects import NOT_DECODED, JsonObjects
from pipeline.offsets.cut import TableRefused
from pipeline.tables.payload_options import Encoding

PAYLOAD = "payload"
WIDER = "the key has a field that --key-schema lacks: keys that differ in it would become one row"


class _Wrapped(msgspec.Struct, forbid_unknown_fields=True):
    schema: msgspec.Raw
    payload: msgspec.Raw


_WRAPPED = msgspec.json.Decoder(_Wrapped)


class JsonKeys:
    """Decodes keys of one struct. Any thread may call."""

    def __init__(self, encoding: Encoding, kind: pa.StructType) -> None:
        """Raises TableRefused: the struct cannot be read from JSON."""
        self._objects = JsonObjects(kind, "--key-schema", is_closed=True)
        self._kind = kind
        self._text = text_of(encoding)
        self._misfit = encoding.misfit
        self.shape = self._objects.shape

    def decode(self, data: Sequence[bytes | None]) -> Decoded:
        """Decode keys. Raises TableRefused: the registry does not answer."""
        texts, whys = texts_of(data, self._text)
        bare = [None if text is None else unwrapped(text) for text in texts]
        objects, bad = self._objects.decoded(bare)
        for row in bad:
            whys[row] = WIDER if self._is_wider(bare[row] or b"") else self._misfit
        return Decoded(objects, whys)

    def _is_wider(self, text: bytes) -> bool:
        try:
            return has_other_fields(json.loads(text), self._kind)
        except (ValueError, RecursionError):
            return False


def json_keys(encoding: Encoding) -> JsonKeys:
    """Returns the decoder of keys. Raises TableRefused: the schema cannot be used."""
    columns = read_columns("--key-schema", encoding.schema or "")
    if PAYLOAD in (name.lower() for name in columns.names):
        raise TableRefused(
            "--key-schema has a field `payload`, which Connect's keys have around them"
        )
    return JsonKeys(encoding, pa.struct(list(columns)))


def unwrapped(text: bytes) -> bytes:
    """Returns a key without Connect's schema around it."""
    if b'"payload"' not in text:
        return text
    try:
        return bytes(_WRAPPED.decode(text).payload)
    except NOT_DECODED:
        return text


def has_other_fields(found: Any, kind: pa.DataType) -> bool:
    """Returns whether an object, or one within it, has a field that its type lacks."""
    if isinstance(found, list) and pa.types.is_list(kind):
        return any(has_other_fields(each, kind.value_type) for each in found)
    if not isinstance(found, dict) or not pa.types.is_struct(kind):
        return False
    known = {field.name: field.type for field in kind}
    return any(
        name not in known or has_other_fields(each, known[name]) for name, each in found.items()
    )
