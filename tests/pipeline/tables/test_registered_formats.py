"""Protobuf and JSON whose schemas a registry has, as columns of a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.offsets.cut import TableRefused
from pipeline.tables.payload_options import (
    Envelope,
    OnUnparsable,
    Payload,
    PayloadFormat,
)
from pipeline.tables.registry_options import reader_schema, registry_access
from schemas.protobuf_rows import columns_ddl
from schemas.schema import SchemaType
from tests.harness.fake_registry import FakeRegistry, with_header, zigzag
from tests.pipeline.table_model import WHEN, frame, record
from tests.schemas.test_protobuf_rows import FULL, ORDER, messages_of, written

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

KEEP = OnUnparsable.KEEP


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """With the schemas 1, Protobuf, 2, JSON, and 3, Avro."""
    fake = FakeRegistry()
    fake.add(ORDER, "PROTOBUF", subject="orders-value")
    fake.add('{"type": "object"}', "JSON")
    fake.add('"long"')
    with fake.served():
        yield fake


def rows(session: SparkSession, payload: Payload, *pairs: tuple[bytes, bytes | None]) -> list[Row]:
    """One record for each key and value, with the offsets 0, 1, ..."""
    from pipeline.tables.payload import rows_of

    records = [record(0, offset, *pair) for offset, pair in enumerate(pairs)]
    return list(rows_of(frame(session, records), payload, None).orderBy("_offset").collect())


def payload_for(registry: FakeRegistry, kind: PayloadFormat, **settings: Any) -> Payload:
    access = registry_access([registry.url], None)
    return Payload(value_format=kind, registry=access, **settings)


def test_a_message_has_the_columns_of_its_subject(
    session: SparkSession, registry: FakeRegistry
) -> None:
    access = registry_access([registry.url], None)
    reader = reader_schema("--value-schema", "subject:orders-value", SchemaType.PROTOBUF, access)
    payload = payload_for(
        registry, PayloadFormat.PROTOBUF, value_schema=reader.text, value_message=reader.message
    )
    messages = messages_of(ORDER)
    full, empty = written(messages, FULL), written(messages, {})

    first, second, dead = rows(session, payload, (b"a", full), (b"b", empty), (b"c", None))

    assert (first["id"], first["big"], first["parts"]) == (-(2**60), Decimal(2**64 - 1), [1, 2**60])
    assert (bytes(first["photo"]), first["kind"], first["maybe"]) == (b"xx", "B", 2**60)
    assert first["at"] == WHEN.replace(tzinfo=None)
    assert json.loads(first["free"]) == {"n": 1.0}
    assert first["lines_by_name"]["a"]["product"] == 2**60
    assert (second["id"], second["note"], second["_tombstone"]) == (0, None, False)
    assert dead["_tombstone"]


def test_what_is_no_message_of_the_subject_is_kept(
    session: SparkSession, registry: FakeRegistry
) -> None:
    payload = payload_for(
        registry,
        PayloadFormat.PROTOBUF,
        value_schema="id BIGINT",
        value_message="shop.Order",
        on_unparsable=KEEP,
    )
    refund = with_header(1, zigzag(1) + zigzag(1) + b"\x08\x07")
    wrong = [refund, with_header(1, b"\0\xff"), with_header(1, b"\x02\x09"), b"no header", b""]

    found = rows(session, payload, *((b"%d" % at, each) for at, each in enumerate(wrong)))

    assert [row["_unparsed"] for row in found] == wrong


def test_without_a_schema_messages_have_the_columns_of_all(
    session: SparkSession, registry: FakeRegistry
) -> None:
    value = written(messages_of(ORDER), {"id": 5, "note": "x"})
    (row,) = rows(session, payload_for(registry, PayloadFormat.PROTOBUF), (b"a", value))
    assert (row["id"], row["note"], row["is_gift"]) == (5, "x", False)


def test_json_of_a_registry_is_read_behind_its_header(
    session: SparkSession, registry: FakeRegistry
) -> None:
    payload = payload_for(
        registry, PayloadFormat.JSON_SCHEMA, value_schema="id INT", on_unparsable=KEEP
    )
    good, bare = with_header(2, b'{"id": 7}'), b'{"id": 7}'

    found = rows(session, payload, (b"a", good), (b"b", bare))
    assert [(row["id"], row["_unparsed"]) for row in found] == [(7, None), (None, bare)]


def test_a_value_whose_schema_is_of_another_type_ends_the_job(
    session: SparkSession, registry: FakeRegistry
) -> None:
    value = with_header(3, b"1")
    for kind in (PayloadFormat.JSON_SCHEMA, PayloadFormat.PROTOBUF):
        with pytest.raises(TableRefused, match="id 3: the registry has it as AVRO, not as"):
            rows(session, payload_for(registry, kind, value_schema="id INT"), (b"a", value))


KEY = 'syntax = "proto3"; package shop; message Key { int64 id = 1; optional string shop = 2; }'


def test_a_key_may_be_a_message_too(session: SparkSession, registry: FakeRegistry) -> None:
    messages, number = messages_of(KEY), registry.add(KEY, "PROTOBUF")
    payload = payload_for(
        registry,
        PayloadFormat.BYTES,
        key_format=PayloadFormat.PROTOBUF,
        key_schema=columns_ddl(messages.first),
        key_message="shop.Key",
    )
    # A writer may write a field twice: the last one counts.
    once = with_header(number, b"\0\x08\x07")
    twice = with_header(number, b"\0\x08\x06\x08\x07")

    (row,) = rows(session, payload, (once, b"old"), (twice, b"new"))
    assert (row["key"].asDict(), bytes(row["value"])) == ({"id": 7, "shop": None}, b"new")


def test_events_of_debezium_may_be_json_of_a_registry(
    session: SparkSession, registry: FakeRegistry
) -> None:
    payload = payload_for(
        registry,
        PayloadFormat.JSON_SCHEMA,
        value_schema="id INT",
        envelope=Envelope.DEBEZIUM,
    )
    (row,) = rows(session, payload, (b"a", with_header(2, b'{"op": "r", "after": {"id": 7}}')))
    assert row["id"] == 7
