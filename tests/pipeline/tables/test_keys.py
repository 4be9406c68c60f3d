"""Keys as columns: text, JSON and Avro, keys that are equal though their bytes differ, and none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.offsets.cut import TableRefused
from pipeline.spark.job import cause
from pipeline.tables.payload_options import OnMissingKey, Payload, PayloadFormat
from pipeline.tables.registry_options import registry_access
from tests.harness.fake_registry import FakeRegistry, with_header
from tests.pipeline.table_model import NOTHING, Record, frame, record

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from pipeline.tables.formats.table import Table

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

KEY = json.dumps(
    {"type": "record", "name": "Key", "fields": [{"name": "id", "type": ["null", "long"]}]}
)
NARROW = json.dumps(
    {"type": "record", "name": "Key", "fields": [{"name": "id", "type": ["null", "int"]}]}
)
"""The same keys by an earlier schema."""
SEVEN, NONE = b"\x02\x0e", b"\x00"
AVRO = Payload(key_format=PayloadFormat.AVRO, key_schema=KEY)
JSON = Payload(key_format=PayloadFormat.JSON, key_schema="id BIGINT, `at` STRING")


def rows(session: SparkSession, payload: Payload, *records: Record) -> list[Row]:
    from pipeline.tables.keys import having_keys
    from pipeline.tables.latest import latest
    from pipeline.tables.payload import rows_of

    last = latest(having_keys(frame(session, records), payload))
    return list(rows_of(last, payload, None).orderBy("_offset").collect())


def keys(session: SparkSession, payload: Payload, *sent: bytes) -> list[tuple[Any, int]]:
    """Returns the key and the offset of each row."""
    found = rows(session, payload, *(record(0, at, key, b"v") for at, key in enumerate(sent)))
    return [(row["key"], row["_offset"]) for row in found]


def test_keys_in_avro_and_json_become_records(session: SparkSession) -> None:
    assert keys(session, AVRO, SEVEN, NONE) == [((7,), 0), ((None,), 1)]
    scalar = Payload(key_format=PayloadFormat.AVRO, key_schema='"long"', key_schema_ids=(1,))
    assert keys(session, scalar, with_header(1, b"\x0e")) == [(7, 0)]
    assert keys(session, JSON, b'{"id": 7, "at": "x"}', b"{}") == [((7, "x"), 0), ((None, None), 1)]


def test_of_keys_that_are_equal_though_their_bytes_differ_the_last_record_counts(
    session: SparkSession,
) -> None:
    sent = [b'{"id": 7, "at": "x"}', b'{"at":"x","id":7}', b'{"id":8}', b'{"id": 7,"at":"x"}']
    assert keys(session, JSON, *sent) == [((8, None), 2), ((7, "x"), 3)]


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """With the schemas 1, the narrow key, and 2, the wide one."""
    fake = FakeRegistry()
    fake.add(NARROW)
    fake.add(KEY)
    with fake.served():
        yield fake


def registered(registry: FakeRegistry, schema: str = KEY) -> Payload:
    access = registry_access([registry.url], None)
    return Payload(key_format=PayloadFormat.AVRO, key_schema=schema, registry=access)


def test_a_key_is_one_row_by_whichever_schema_it_was_written(
    session: SparkSession, registry: FakeRegistry
) -> None:
    sent = with_header(1, SEVEN), with_header(2, NONE), with_header(2, SEVEN)
    assert keys(session, registered(registry), *sent) == [((None,), 1), ((7,), 2)]
    assert registry.asked == ["/schemas/ids/1", "/schemas/ids/2"]


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_stream_updates_and_deletes_by_what_the_key_says(
    session: SparkSession, registry: FakeRegistry, tmp_path: Path, kind: str
) -> None:
    from pipeline.tables.formats.delta_table import DeltaTable
    from pipeline.tables.formats.parquet_table import ParquetTable
    from pipeline.tables.job import bring_in

    table: Table = (DeltaTable if kind == "delta" else ParquetTable)(session, str(tmp_path / "t"))
    first, second = with_header(1, SEVEN), with_header(2, SEVEN)
    null = with_header(1, NONE), with_header(2, NONE)
    batches = [
        [record(0, 0, first, b"old"), record(0, 1, null[0], b"old")],
        [record(0, 2, second, b"new"), record(0, 3, null[1], b"new")],
        [record(0, 4, first, None), record(0, 5, null[0], b"newest")],
    ]
    found = []
    for batch in batches:
        bring_in(frame(session, batch), table, registered(registry), NOTHING)
        found.append({row["key"].id: bytes(row["value"]) for row in table.read().collect()})

    assert found == [{7: b"old", None: b"old"}, {7: b"new", None: b"new"}, {None: b"newest"}]


WRAPPED = b'{"schema":{"type":"struct"},"payload":{"id":7}}'


def test_a_key_within_its_schema_is_what_it_is_without(session: SparkSession) -> None:
    eight = WRAPPED.replace(b"7", b"8")
    sent = WRAPPED, eight, b'{"id":7}'
    assert keys(session, JSON, *sent) == [((8, None), 1), ((7, None), 2)]


NESTED = Payload(key_format=PayloadFormat.JSON, key_schema="id BIGINT, at STRUCT<x: INT>")
WIDER = [
    (JSON, b'{"id": 7, "shop": 1}'),
    (JSON, b'{"order_id": 7}'),
    (JSON, WRAPPED.replace(b'"id"', b'"order"')),
    (NESTED, b'{"id": 7, "at": {"x": 1, "y": 2}}'),
]


@pytest.mark.parametrize(("payload", "key"), WIDER)
def test_keys_in_json_that_may_differ_in_a_field_that_is_not_read_end_the_job(
    session: SparkSession, payload: Payload, key: bytes
) -> None:
    with pytest.raises(Exception, match="orders-0, offset 4") as failure:
        rows(session, payload, record(0, 4, key, b"v"))
    assert "the key has a field that --key-schema lacks" in cause(failure.value)


def test_keys_in_avro_that_may_differ_in_a_field_that_is_not_read_end_the_job(
    session: SparkSession, registry: FakeRegistry
) -> None:
    wider = json.loads(KEY)
    wider["fields"].append({"name": "shop", "type": "long"})
    number = registry.add(json.dumps(wider))
    sent = (
        record(0, 0, with_header(2, SEVEN), b"v"),
        record(0, 1, with_header(3, SEVEN + b"\2"), b"v"),
    )

    assert number == 3
    with pytest.raises(
        TableRefused, match=r"offset 1: .* id 3: it has the field shop, which --key"
    ):
        rows(session, registered(registry), *sent)


BROKEN: list[tuple[Payload, bytes, str]] = [
    (AVRO, SEVEN + b"\0", "the key is not avro of this schema"),
    (JSON, b"[]", "the key is not json of this schema"),
    (JSON, WRAPPED + b"x", "the key is not json of this schema"),
    (JSON, b'{"id": 7}x', "the key is not json of this schema"),
    (JSON, b'{"schema": {}, "payload": null}', "the key is not json of this schema"),
    (Payload(key_format=PayloadFormat.STRING), b"\xff", "the key is no text"),
]


@pytest.mark.parametrize(("payload", "key", "says"), BROKEN)
def test_a_key_that_cannot_be_read_ends_the_job_with_its_place(
    session: SparkSession, payload: Payload, key: bytes, says: str
) -> None:
    with pytest.raises(Exception, match="orders-0, offset 4") as failure:
        rows(session, payload, record(0, 4, key, b"v"))
    assert cause(failure.value) == f"orders-0, offset 4: {says}"


def test_a_key_of_an_unknown_schema_ends_the_job_before_anything_is_read(
    session: SparkSession, registry: FakeRegistry
) -> None:
    sent = record(0, 0, with_header(2, SEVEN), b"v"), record(1, 3, with_header(9, SEVEN), b"v")

    with pytest.raises(TableRefused, match="orders-1, offset 3: the key has the schema with id 9"):
        rows(session, registered(registry), *sent)


def test_a_schema_of_keys_that_is_none_is_one_sentence(
    session: SparkSession, registry: FakeRegistry
) -> None:
    for payload in (
        registered(registry, "{"),
        Payload(key_format=PayloadFormat.AVRO, key_schema="{"),
    ):
        with pytest.raises(TableRefused, match=r"--key-schema.*Avro"):
            rows(session, payload, record(0, 0, with_header(2, SEVEN), b"v"))


@pytest.mark.parametrize("payload", [Payload(), AVRO, Payload(key_format=PayloadFormat.STRING)])
def test_a_record_without_a_key_ends_the_job_with_its_place(
    session: SparkSession, payload: Payload
) -> None:
    with pytest.raises(Exception, match="orders-0, offset 4") as failure:
        rows(session, payload, record(0, 3, SEVEN, b"v"), record(0, 4, None, b"v"))
    assert cause(failure.value) == (
        "orders-0, offset 4: the record has no key: --on-missing-key skip leaves such records out"
    )


def test_records_without_a_key_are_left_out_if_the_user_says_so(session: SparkSession) -> None:
    payload = Payload(on_missing_key=OnMissingKey.SKIP)
    found = rows(session, payload, record(0, 3, b"k", b"v"), record(0, 4, None, b"v"))
    assert [row["_offset"] for row in found] == [3]


def test_a_key_that_cannot_be_compared_is_refused(session: SparkSession) -> None:
    payload = Payload(
        key_format=PayloadFormat.JSON, key_schema="a ARRAY<STRUCT<m: MAP<STRING, INT>>>"
    )
    with pytest.raises(TableRefused, match="maps cannot be compared"):
        rows(session, payload, record(0, 0, b"{}", b"v"))


def test_options_for_keys_that_make_no_sense_are_refused() -> None:
    with pytest.raises(TableRefused, match="keys in Avro need --key-schema"):
        Payload(key_format=PayloadFormat.AVRO)
    with pytest.raises(TableRefused, match="keys in json need --key-schema"):
        Payload(key_format=PayloadFormat.JSON)
    with pytest.raises(TableRefused, match="keys in protobuf need --key-schema subject:NAME"):
        Payload(
            key_format=PayloadFormat.PROTOBUF,
            key_schema="id INT",
            registry=registry_access(["http://registry"], None),
        )
    with pytest.raises(TableRefused, match="--key-schema does not go with keys in string"):
        Payload(key_format=PayloadFormat.STRING, key_schema="id INT")
    with pytest.raises(TableRefused, match="--key-schema-id goes with keys in Avro"):
        Payload(key_schema_ids=(1,))
    with pytest.raises(TableRefused, match="--schema-registry goes with"):
        Payload(registry=registry_access(["http://registry"], None))
