"""Reads values into a table's columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.export.columns.avro_decoder import AvroDecoder
from pipeline.export.columns.ddl import read_columns
from pipeline.export.columns.decoded import Decoder
from pipeline.export.columns.json_decoder import JsonDecoder
from pipeline.export.columns.json_objects import invalid_text
from pipeline.export.columns.shapes import columns_of
from pipeline.export.columns.spark_types import of_table
from pipeline.offsets.cut import TableRefused
from pipeline.tables.formats.column_names import ORIGIN, UNPARSED
from pipeline.tables.payload_options import Payload, PayloadFormat


@dataclass(frozen=True, slots=True)
class ValuesRead:
    """What the values of a batch say."""

    rows: pa.StructArray
    """The value columns; null where a value leaves no row."""
    deletes: npt.NDArray[np.bool_]
    whys: dict[int, str]
    """Why values cannot be read, as clauses."""


class ValueReader(Protocol):
    """Reads values. Any thread may call."""

    @property
    def columns(self) -> pa.StructType: ...

    def read(self, values: pa.BinaryArray) -> ValuesRead:
        """Read a batch. Raises TableRefused: the registry does not answer."""


class BytesAsTheyAre:
    """Values that are bytes: one column, `value`."""

    columns = pa.struct([pa.field("value", pa.binary())])

    def read(self, values: pa.BinaryArray) -> ValuesRead:
        rows = pa.StructArray.from_arrays([values], fields=list(self.columns))
        return ValuesRead(rows, nulls(values), {})


class Texts:
    """Values that are text: one column, `value`."""

    columns = pa.struct([pa.field("value", pa.string())])

    def __init__(self, misfit: str) -> None:
        self._misfit = misfit

    def read(self, values: pa.BinaryArray) -> ValuesRead:
        texts, bad = as_text(values)
        rows = pa.StructArray.from_arrays([texts], fields=list(self.columns))
        return ValuesRead(rows, nulls(values), dict.fromkeys(bad, self._misfit))


class Records:
    """Values that have the columns as fields."""

    def __init__(self, decoder: Decoder, misfit: str) -> None:
        self._decoder, self._misfit = decoder, misfit
        self.columns = decoder.shape.type

    def read(self, values: pa.BinaryArray) -> ValuesRead:
        decoded = self._decoder.decode(values.to_pylist())
        rows, bad = columns_of(decoded.objects, self._decoder.shape)
        whys = decoded.whys | dict.fromkeys(bad, self._misfit)
        return ValuesRead(rows, nulls(values), whys)


def as_text(data: pa.BinaryArray) -> tuple[pa.StringArray, list[int]]:
    """Returns bytes as text, and the rows that are none: null, too."""
    try:
        return data.cast(pa.string()), []
    except pa.ArrowInvalid:
        found = data.to_pylist()
    bad = sorted(invalid_text(found))
    for row in bad:
        found[row] = None
    return pa.array(found, pa.binary()).cast(pa.string()), bad


def nulls(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Returns which values are null."""
    found: npt.NDArray[np.bool_] = values.is_null().to_numpy(zero_copy_only=False)
    return found


def plain_values(payload: Payload, table_columns: pa.Schema | None) -> ValueReader:
    """Returns the reader of values without an envelope. Raises TableRefused."""
    value = payload.value
    match value.format:
        case PayloadFormat.BYTES:
            return BytesAsTheyAre()
        case PayloadFormat.STRING:
            return Texts(value.misfit)
        case PayloadFormat.AVRO:
            return Records(AvroDecoder(value, value.misfit), value.misfit)
        case PayloadFormat.JSON | PayloadFormat.JSON_SCHEMA | PayloadFormat.PROTOBUF:
            columns = json_columns(payload, table_columns)
            return Records(JsonDecoder(value, columns, value.misfit), value.misfit)


def json_columns(payload: Payload, table_columns: pa.Schema | None) -> pa.StructType:
    """Returns the columns of JSON: the user's, or the table's. Raises TableRefused: there are none."""
    if payload.value_schema is not None:
        return pa.struct(list(read_columns("--value-schema", payload.value_schema)))
    if table_columns is None:
        raise TableRefused(f"values in {payload.value_format} need --value-schema")
    others = {payload.key_column, UNPARSED, *ORIGIN}
    return pa.struct(
        [
            pa.field(each.name, of_table(each.name, each.type))
            for each in table_columns
            if each.name not in others
        ]
    )
