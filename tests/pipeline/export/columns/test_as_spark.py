"""A row reader reads values as Spark's table jobs do, or refuses them: compared with Spark itself."""

from __future__ import annotations

import io
import json
import math
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest

from pipeline.export.columns.reader import RowReader
from pipeline.tables.payload_options import OnUnparsable, Payload, PayloadFormat
from tests.pipeline.export.columns.json_transcript import REFUSED, Stricter, cases
from tests.pipeline.table_model import frame, record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = list(cases())
KINDS = list(dict.fromkeys(kind for kind, _, _ in CASES))


def json_payload(schema: str) -> Payload:
    return Payload(
        value_format=PayloadFormat.JSON,
        value_schema=schema,
        on_unparsable=OnUnparsable.KEEP,
    )


def same(one: Any, other: Any) -> bool:
    """Returns whether two values are equal, also in the sign of a zero and in NaN."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isnan(one) == math.isnan(other) and repr(one) == repr(other)
    return type(one) is type(other) and bool(one == other)


def read(payload: Payload, *values: bytes) -> list[Any]:
    """Returns the column `c` of each value, or REFUSED."""
    keys = pa.array([b"k"] * len(values), pa.binary())
    found = RowReader(payload).read(keys, pa.array(values, pa.binary()))
    said = list(found.columns.column("c").to_pylist())
    for each in found.refused:
        assert each.reason == "the value is not json of this schema"
        said[each.row] = REFUSED
    return said


@pytest.mark.parametrize("kind", KINDS)
def test_json_is_read_as_the_transcript_says(kind: str) -> None:
    values = [value for its, value, _ in CASES if its == kind]
    expected = [
        REFUSED if isinstance(says, Stricter) else says for its, _, says in CASES if its == kind
    ]
    alone = [read(json_payload(f"c {kind}"), value)[0] for value in values]
    together = read(json_payload(f"c {kind}"), *values)

    for value, says, one, other in zip(values, expected, alone, together, strict=True):
        assert same(one, says), (value, one, says)
        assert same(other, says), (value, other, says)


AVRO = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
    "fixed": {"type": "fixed", "name": "F", "size": 1},
    "enum": {"type": "enum", "name": "E", "symbols": ["A"]},
    "uuid": {"type": "string", "logicalType": "uuid"},
    "date": {"type": "int", "logicalType": "date"},
    "millis": {"type": "long", "logicalType": "timestamp-millis"},
    "micros": {"type": "long", "logicalType": "timestamp-micros"},
    "local_millis": {"type": "long", "logicalType": "local-timestamp-millis"},
    "local_micros": {"type": "long", "logicalType": "local-timestamp-micros"},
    "nanos": {"type": "long", "logicalType": "timestamp-nanos"},
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
    "fixed_decimal": {
        "type": "fixed",
        "name": "D",
        "size": 1,
        "logicalType": "decimal",
        "precision": 2,
    },
    "array": {"type": "array", "items": ["null", "int"]},
    "map": {"type": "map", "values": "long"},
    "record": {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]},
    "again": "R",
    "single": ["int"],
    "last": ["string", "null"],
    "integers": ["null", "int", "long"],
    "floats": ["double", "float"],
    "time_millis": {"type": "int", "logicalType": "time-millis"},
}
"""The types of fields."""


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_spark_answers_as_the_transcript_says(session: SparkSession) -> None:
    from pipeline.tables.payload import rows_of

    schema = ", ".join(f"c{at} {kind}" for at, kind in enumerate(KINDS))
    values = [
        value.replace(b'"c"', b'"c%d"' % KINDS.index(kind), 1) if kind != "INT" else value
        for kind, value, _ in CASES
    ]
    schema = schema.replace(f"c{KINDS.index('INT')} INT", "c INT")
    records = [record(0, at, b"k", value) for at, value in enumerate(values)]
    rows = rows_of(frame(session, records), json_payload(schema), None)
    found = rows.orderBy("_offset").toArrow()

    reader = RowReader(json_payload(schema))
    assert kinds_of(found.select(reader.schema.names).schema) == kinds_of(reader.schema)
    for at, (kind, value, says) in enumerate(CASES):
        column = "c" if kind == "INT" else f"c{KINDS.index(kind)}"
        is_kept = found.column("_unparsed")[at].as_py() is not None
        spark = REFUSED if is_kept else found.column(column)[at].as_py()
        assert same(spark, says.spark if isinstance(says, Stricter) else says), (value, spark, says)


AVRO_VALUE = {
    "boolean": True,
    "int": -(2**31),
    "long": 2**63 - 1,
    "float": 0.10000000149011612,
    "double": 0.1,
    "string": "é",
    "bytes": b"\xff",
    "fixed": b"x",
    "enum": "A",
    "uuid": "no uuid",
    "date": -1,
    "millis": -1,
    "micros": -1,
    "local_millis": 1,
    "local_micros": 1,
    "nanos": 1,
    "decimal": b"\xff",
    "fixed_decimal": b"\x63",
    "array": [1, None],
    "map": {"a": 1},
    "record": {"x": 1},
    "again": {"x": 2},
    "single": 3,
    "last": "x",
    "integers": 2**40,
    "floats": 1.5,
    "time_millis": 1,
}
"""One of each, as what stores it."""


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_avro_is_what_spark_makes_of_it(session: SparkSession) -> None:
    from pipeline.tables.payload import rows_of

    fields = [{"name": name, "type": kind} for name, kind in AVRO.items()]
    schema = {"type": "record", "name": "All", "fields": fields}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), AVRO_VALUE)
    payload = Payload(value_format=PayloadFormat.AVRO, value_schema=json.dumps(schema))
    reader = RowReader(payload)

    sent = frame(session, [record(0, 0, b"k", stream.getvalue())])
    found = rows_of(sent, payload, None).toArrow().select(reader.schema.names)

    assert kinds_of(found.schema) == kinds_of(reader.schema)
    ours = reader.read(pa.array([b"k"]), pa.array([stream.getvalue()]))
    assert ours.columns.to_pylist() == found.to_pylist()


def kinds_of(schema: pa.Schema) -> dict[str, str]:
    """Returns the types of columns. What is inside an array has no name for Spark."""
    kinds = {field.name: str(field.type).replace(" not null", "") for field in schema}
    return {name: kind.replace("<element: ", "<item: ") for name, kind in kinds.items()}
