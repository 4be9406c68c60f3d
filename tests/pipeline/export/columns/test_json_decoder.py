"""JSON behind a registry's header, and messages of Protobuf, as columns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from pipeline.tables.payload_options import Payload, PayloadFormat
from pipeline.tables.registry_options import reader_schema, registry_access
from schemas.schema import SchemaType
from tests.harness.fake_registry import FakeRegistry, with_header, zigzag
from tests.pipeline.export.columns.reading import reasons, rows
from tests.pipeline.table_model import WHEN
from tests.schemas.test_protobuf_rows import FULL, ORDER, messages_of, written


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """With the schemas 1, Protobuf, 2, JSON, and 3, Avro."""
    fake = FakeRegistry()
    fake.add(ORDER, "PROTOBUF", subject="orders-value")
    fake.add('{"type": "object"}', "JSON")
    fake.add('"long"')
    with fake.served():
        yield fake


def payload_for(registry: FakeRegistry, kind: PayloadFormat, **settings: Any) -> Payload:
    access = registry_access([registry.url], None)
    return Payload(value_format=kind, registry=access, **settings)


def orders(registry: FakeRegistry) -> Payload:
    access = registry_access([registry.url], None)
    reader = reader_schema("--value-schema", "subject:orders-value", SchemaType.PROTOBUF, access)
    return payload_for(
        registry, PayloadFormat.PROTOBUF, value_schema=reader.text, value_message=reader.message
    )


def test_a_message_has_the_columns_of_its_subject(registry: FakeRegistry) -> None:
    messages = messages_of(ORDER)
    first, second, _ = rows(orders(registry), written(messages, FULL), written(messages, {}), None)

    assert (first["id"], first["big"], first["parts"]) == (-(2**60), Decimal(2**64 - 1), [1, 2**60])
    assert (first["photo"], first["kind"], first["maybe"]) == (b"xx", "B", 2**60)
    assert first["at"] == WHEN
    assert json.loads(first["free"]) == {"n": 1.0}
    assert dict(first["lines_by_name"])["a"]["product"] == 2**60
    assert (second["id"], second["note"]) == (0, None)


def test_what_is_no_message_of_the_subject_is_refused(registry: FakeRegistry) -> None:
    refund = with_header(1, zigzag(1) + zigzag(1) + b"\x08\x07")
    wrong = [refund, with_header(1, b"\0\xff"), with_header(1, b"\x02\x09"), b"no header", b""]
    misfit, no_name = (
        "the value is not protobuf of this schema",
        "the value does not name a schema",
    )
    assert reasons(orders(registry), *wrong) == [misfit, misfit, misfit, no_name, no_name]


def test_json_of_a_registry_is_read_behind_its_header(registry: FakeRegistry) -> None:
    payload = payload_for(registry, PayloadFormat.JSON_SCHEMA, value_schema="id INT")
    good, bare = with_header(2, b'{"id": 7}'), b'{"id": 7}'
    assert rows(payload, good, None) == [{"id": 7}, {"id": None}]
    assert reasons(payload, good, bare, with_header(2, b'{"id": "x"}')) == [
        None,
        "the value does not name a schema",
        "the value is not json of this schema",
    ]


def test_a_value_whose_schema_is_of_another_type_is_refused(registry: FakeRegistry) -> None:
    for kind in (PayloadFormat.JSON_SCHEMA, PayloadFormat.PROTOBUF):
        (reason,) = reasons(
            payload_for(registry, kind, value_schema="id INT"), with_header(3, b"1")
        )
        assert reason is not None
        assert "id 3: the registry has it as AVRO, not as" in reason
