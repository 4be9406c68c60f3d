"""Reads keys into the key column.

A key in JSON or Avro is what it says, and not its bytes: two writers may encode one key in two ways.
Keys that differ must not become equal: one with a field that the schema lacks is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from pipeline.export.columns.avro_decoder import AvroDecoder
from pipeline.export.columns.decoded import Decoder
from pipeline.export.columns.json_keys import json_keys
from pipeline.export.columns.key_identity import identity_of
from pipeline.export.columns.shapes import columns_of
from pipeline.export.columns.values import as_text
from pipeline.offsets.cut import TableRefused
from pipeline.tables.payload_options import Encoding, PayloadFormat


@dataclass(frozen=True, slots=True)
class KeysRead:
    """What the keys of a batch say."""

    column: pa.Array
    """Null where a key cannot be read."""
    whys: dict[int, str]
    identity: pa.BinaryArray | None
    """As in RowsRead."""


class KeyReader(Protocol):
    """Reads keys. Any thread may call."""

    @property
    def type(self) -> pa.DataType: ...

    def read(self, keys: pa.BinaryArray) -> KeysRead:
        """Read a batch. Raises TableRefused: the registry does not answer."""


class BytesAsTheyAre:
    """Keys that are bytes."""

    type = pa.binary()

    def read(self, keys: pa.BinaryArray) -> KeysRead:
        return KeysRead(keys, {}, None)


class Texts:
    """Keys that are text."""

    type = pa.string()

    def read(self, keys: pa.BinaryArray) -> KeysRead:
        texts, bad = as_text(keys)
        return KeysRead(texts, dict.fromkeys(bad, "the key is no text"), None)


class Decodable:
    """Keys that a decoder makes something of."""

    def __init__(self, decoder: Decoder, misfit: str, *, is_record: bool) -> None:
        """Raises TableRefused: keys would have maps.

        Args:
            misfit: says of a key that it does not fit, as a clause.
            is_record: whether the key column is a struct of the decoder's columns, and not the one
                column that there is.
        """
        self._decoder, self._misfit, self._is_record = decoder, misfit, is_record
        whole = decoder.shape.type
        self.type = whole if is_record else whole.field(0).type
        refuse_maps(self.type)

    def read(self, keys: pa.BinaryArray) -> KeysRead:
        decoded = self._decoder.decode(keys.to_pylist())
        rows, bad = columns_of(decoded.objects, self._decoder.shape)
        column = rows if self._is_record else rows.field(0)
        whys = dict.fromkeys(bad, self._misfit)
        if column.null_count > len(decoded.whys) + len(bad):
            # A key that says null.
            unread = column.is_null().to_pylist()
            whys = {row: self._misfit for row, is_unread in enumerate(unread) if is_unread}
        return KeysRead(column, whys | decoded.whys, identity_of(column))


def refuse_maps(kind: pa.DataType) -> None:
    """Raise TableRefused if a key has a map, because maps cannot be compared."""
    if pa.types.is_map(kind):
        raise TableRefused("--key-schema has a map, and maps cannot be compared")
    if pa.types.is_struct(kind):
        for field in kind:
            refuse_maps(field.type)
    if pa.types.is_list(kind):
        refuse_maps(kind.value_type)


def key_reader(key: Encoding) -> KeyReader:
    """Returns the reader of a topic's keys. Raises TableRefused: the schema cannot be used."""
    match key.format:
        case PayloadFormat.BYTES:
            return BytesAsTheyAre()
        case PayloadFormat.STRING:
            return Texts()
        case PayloadFormat.AVRO:
            decoder = AvroDecoder(key, key.misfit)
            return Decodable(decoder, key.misfit, is_record=decoder.is_record)
        case PayloadFormat.JSON | PayloadFormat.JSON_SCHEMA | PayloadFormat.PROTOBUF:
            return Decodable(json_keys(key), key.misfit, is_record=True)
