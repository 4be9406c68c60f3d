"""Keys become the key column; two keys have one identity exactly if they are equal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from pipeline.export.columns.reader import RowReader
from pipeline.offsets.cut import TableRefused
from pipeline.tables.payload_options import Payload, PayloadFormat
from pipeline.tables.registry_options import registry_access
from schemas.protobuf_rows import columns_ddl
from tests.harness.fake_registry import FakeRegistry, with_header
from tests.pipeline.export.columns.reading import rows_read
from tests.pipeline.tables.test_keys import (
    AVRO,
    BROKEN,
    JSON,
    KEY,
    NARROW,
    NONE,
    SEVEN,
    WIDER,
    WRAPPED,
)
from tests.pipeline.tables.test_registered_formats import KEY as MESSAGE
from tests.schemas.test_protobuf_rows import messages_of


def keys(payload: Payload, *sent: bytes) -> list[tuple[Any, Any]]:
    """Returns the key and the identity of each row."""
    found = rows_read(payload, [b"v"] * len(sent), sent)
    assert found.refused == ()
    assert found.key_identity is not None
    return list(
        zip(found.columns.column("key").to_pylist(), found.key_identity.to_pylist(), strict=True)
    )


def test_keys_in_avro_and_json_become_records() -> None:
    assert [key for key, _ in keys(AVRO, SEVEN, NONE)] == [{"id": 7}, {"id": None}]
    found = keys(JSON, b'{"id": 7, "at": "x"}', b"{}", b'{"id": 7, "at": 5}')
    assert [key for key, _ in found] == [
        {"id": 7, "at": "x"},
        {"id": None, "at": None},
        {"id": 7, "at": "5"},
    ]
    scalar = Payload(key_format=PayloadFormat.AVRO, key_schema='"long"', key_schema_ids=(1,))
    assert [key for key, _ in keys(scalar, with_header(1, b"\x0e"))] == [7]


def test_keys_that_are_equal_though_their_bytes_differ_have_one_identity() -> None:
    sent = [b'{"id": 7, "at": "x"}', b'{"at":"x","id":7}', b'{"id":8}', b'{"id": 7,"at":"x"}']
    first, second, other, third = (identity for _, identity in keys(JSON, *sent))
    assert first == second == third != other


def test_a_key_within_its_schema_is_what_it_is_without() -> None:
    (wrapped, one), (bare, same) = keys(JSON, WRAPPED, b'{"id":7}')
    assert (wrapped, one) == (bare, same) == ({"id": 7, "at": None}, one)
    ((text, _),) = keys(JSON, b'{"id": 7, "at": "\\"payload\\""}')
    assert text["at"] == '"payload"'


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


def test_a_key_is_one_row_by_whichever_schema_it_was_written(registry: FakeRegistry) -> None:
    sent = with_header(1, SEVEN), with_header(2, NONE), with_header(2, SEVEN)
    (key, one), (_, other), (_, same) = keys(registered(registry), *sent)
    assert (key, one) == ({"id": 7}, same)
    assert one != other
    assert registry.asked == ["/schemas/ids/1", "/schemas/ids/2"]


def refusal(payload: Payload, key: bytes) -> str:
    """Returns why a key is refused, whose value is a tombstone."""
    found = rows_read(payload, [None], [key])
    (refused,) = found.refused
    assert (refused.row, refused.is_key) == (0, True)
    assert not found.columns.column("key")[0].is_valid
    if found.key_identity is not None:
        assert not found.key_identity[0].is_valid
    return refused.reason


@pytest.mark.parametrize(("payload", "key"), WIDER)
def test_a_key_with_a_field_that_the_schema_lacks_is_refused(payload: Payload, key: bytes) -> None:
    assert refusal(payload, key) == (
        "the key has a field that --key-schema lacks: keys that differ in it would become one row"
    )


@pytest.mark.parametrize(("payload", "key", "says"), BROKEN)
def test_a_key_that_cannot_be_read_is_refused(payload: Payload, key: bytes, says: str) -> None:
    assert refusal(payload, key) == says


def test_a_key_that_says_null_is_refused() -> None:
    for kind in ('["null", "long"]', KEY.join(('["null", ', "]"))):
        payload = Payload(key_format=PayloadFormat.AVRO, key_schema=kind)
        assert refusal(payload, b"\x00") == "the key is not avro of this schema"


def test_a_schema_of_keys_with_a_field_that_the_users_lacks_is_refused(
    registry: FakeRegistry,
) -> None:
    wider = json.loads(KEY)
    wider["fields"].append({"name": "shop", "type": "long"})
    number = registry.add(json.dumps(wider))

    assert refusal(registered(registry), with_header(number, SEVEN + b"\2")) == (
        "the key has the schema with id 3: it has the field shop, which --key-schema lacks: keys that"
        " differ in it would become one row"
    )


def test_a_field_of_a_key_may_have_had_another_name(registry: FakeRegistry) -> None:
    renamed = json.loads(KEY)
    renamed["fields"][0] |= {"name": "number", "aliases": ["id"]}
    payload = registered(registry, json.dumps(renamed))
    assert [key for key, _ in keys(payload, with_header(2, SEVEN))] == [{"number": 7}]


def test_a_key_may_be_a_message_too(registry: FakeRegistry) -> None:
    number = registry.add(MESSAGE, "PROTOBUF")
    payload = Payload(
        key_format=PayloadFormat.PROTOBUF,
        key_schema=columns_ddl(messages_of(MESSAGE).first),
        key_message="shop.Key",
        registry=registry_access([registry.url], None),
    )
    once, twice = b"\0\x08\x07", b"\0\x08\x06\x08\x07"

    found = keys(payload, with_header(number, once), with_header(number, twice))

    assert found[0] == found[1]
    assert found[0][0] == {"id": 7, "shop": None}


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("a ARRAY<STRUCT<m: MAP<STRING, INT>>>", "maps cannot be compared"),
        ("Payload INT", "has a field `payload`"),
    ],
)
def test_a_schema_that_keys_cannot_have_is_refused(schema: str, sentence: str) -> None:
    with pytest.raises(TableRefused, match=sentence):
        RowReader(Payload(key_format=PayloadFormat.JSON, key_schema=schema))
