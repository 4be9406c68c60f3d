"""Messages as rows: numbers in their JSON, and the columns that fit it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass

from schemas.outcomes import BadValue, UnsupportedSchema
from schemas.protobuf_rows import columns_ddl, row_json
from schemas.protobuf_values import Messages, compiled
from schemas.schema import Schema, SchemaType
from tests.harness.fake_registry import with_header, zigzag

ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message Order {
  int64 id = 1;
  uint64 big = 2;
  uint32 count = 3;
  repeated int64 parts = 4;
  map<int32, int64> by_year = 5;
  map<string, Line> lines_by_name = 6;
  repeated Line lines = 7;
  optional string note = 8;
  bytes photo = 9;
  Kind kind = 10;
  google.protobuf.Timestamp at = 11;
  google.protobuf.Int64Value maybe = 12;
  google.protobuf.Struct free = 13;
  oneof paid { double in_cash = 14; string by_card = 15; }
  float weight = 16;
  bool is_gift = 17;
  sint32 delta = 18;
  enum Kind { A = 0; B = 1; }
  message Line { int64 product = 1; }
}
message Refund { int64 id = 1; }
"""
FULL: dict[str, Any] = {
    "id": -(2**60),
    "big": 2**64 - 1,
    "count": 2**32 - 1,
    "parts": [1, 2**60],
    "by_year": {"1999": 2**60},
    "lines_by_name": {"a": {"product": 2**60}},
    "lines": [{"product": 7}],
    "note": "hi",
    "photo": "eHg=",
    "kind": "B",
    "at": "2026-01-01T00:00:00Z",
    "maybe": 2**60,
    "free": {"n": 1.0},
    "in_cash": 1.5,
    "weight": 0.5,
    "is_gift": True,
    "delta": -3,
}
DDL = (
    "`id` BIGINT, `big` DECIMAL(20, 0), `count` BIGINT, `parts` ARRAY<BIGINT>,"
    " `by_year` MAP<STRING, BIGINT>, `lines_by_name` MAP<STRING, STRUCT<`product`: BIGINT>>,"
    " `lines` ARRAY<STRUCT<`product`: BIGINT>>, `note` STRING, `photo` BINARY, `kind` STRING,"
    " `at` TIMESTAMP, `maybe` BIGINT, `free` STRING, `in_cash` DOUBLE, `by_card` STRING,"
    " `weight` FLOAT, `is_gift` BOOLEAN, `delta` INT"
)


def messages_of(text: str) -> Messages:
    return Messages(compiled(Schema(id=1, type=SchemaType.PROTOBUF, text=text)))


def written(messages: Messages, fields: dict[str, Any]) -> bytes:
    message = json_format.ParseDict(fields, GetMessageClass(messages.first)())
    return with_header(1, zigzag(0) + bytes(message.SerializeToString()))


def test_numbers_of_64_bits_are_numbers_wherever_they_are() -> None:
    messages = messages_of(ORDER)
    assert json.loads(row_json(messages, written(messages, FULL), None)) == FULL


def test_fields_that_are_not_set_have_their_default_or_are_not_there() -> None:
    messages = messages_of(ORDER)
    found = json.loads(row_json(messages, written(messages, {}), "shop.Order"))
    assert (found["id"], found["parts"], found["kind"]) == (0, [], "A")
    assert found.keys().isdisjoint({"note", "maybe", "at", "in_cash", "by_card"})


def test_the_columns_of_a_message_have_the_types_of_its_fields() -> None:
    assert columns_ddl(messages_of(ORDER).first) == DDL


def test_another_message_than_the_expected_one_is_no_row() -> None:
    messages = messages_of(ORDER)
    refund = with_header(1, zigzag(1) + zigzag(1) + b"\x08\x07")

    assert row_json(messages, refund, None) == b'{"id":7}'
    with pytest.raises(BadValue, match=r"it is a shop\.Refund, and no shop\.Order"):
        row_json(messages, refund, "shop.Order")


def test_a_message_without_end_has_no_columns() -> None:
    tree = messages_of('syntax = "proto3"; message Tree { repeated Tree children = 1; }')
    with pytest.raises(UnsupportedSchema, match="Tree contains itself"):
        columns_ddl(tree.first)
    with pytest.raises(UnsupportedSchema, match="it has no message"):
        messages_of('syntax = "proto3";').first  # noqa: B018
