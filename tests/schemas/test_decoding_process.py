"""Values decoded in a process of their own, and what clients can write to harm it."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import subprocess
import time
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import decoding_process
from schemas.decoding_child import CPU_SECONDS_MAX, MEMORY_BYTES_MAX, answer_to
from schemas.decoding_frames import Answer, Request
from schemas.decoding_process import DecodingProcess
from schemas.outcomes import (
    BAD_VALUE,
    NOT_INSTALLED,
    TOO_COMPLEX,
    TOO_LARGE,
    UNSUPPORTED_SCHEMA,
    Decoded,
    Outcome,
    Undecoded,
)
from schemas.protobuf_values import protobuf_decoder
from schemas.schema import Named, Schema, SchemaType
from tests.harness.fake_registry import with_header, zigzag

USER = {
    "type": "record",
    "name": "User",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "age", "type": ["null", "int"]},
        {"name": "photo", "type": "bytes"},
        {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "born", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "owes",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
    ],
}
PROTO = """
syntax = "proto3";
package users;
import "geo/city.proto";
import "google/protobuf/timestamp.proto";
message First { int32 a = 1; }
message User {
  message Inner { string x = 1; }
  string name = 1;
  int64 id = 2;
  geo.City city = 3;
  google.protobuf.Timestamp seen = 4;
  bytes photo = 5;
  repeated int32 numbers = 6;
}
message Mapped { map<string, int32> m = 1; message Inside { int32 b = 1; } }
"""
CITY = 'syntax = "proto3"; package geo; message City { string name = 1; }'
OSLO = b"\x02\x08Oslo"
CHAIN = {
    "type": "record",
    "name": "Chain",
    "fields": [{"name": "next", "type": ["null", "Chain"]}],
}


@pytest.fixture(scope="module")
def process() -> Iterator[DecodingProcess]:
    process = DecodingProcess()
    yield process
    process.close()


def avro(schema: Any, *references: Named, schema_id: int = 7) -> Schema:
    text = json.dumps(schema)
    return Schema(id=schema_id, type=SchemaType.AVRO, text=text, references=references)


def proto(text: str, *references: Named) -> Schema:
    return Schema(id=7, type=SchemaType.PROTOBUF, text=text, references=references)


def written(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return with_header(7, stream.getvalue())


def shown(outcome: Outcome) -> Any:
    assert isinstance(outcome, Decoded), outcome
    assert b"\n" not in outcome.json
    return json.loads(outcome.json)


def code_of(outcome: Outcome) -> str:
    assert isinstance(outcome, Undecoded), outcome
    return outcome.code


def test_a_value_in_avro_is_readable_json(process: DecodingProcess) -> None:
    value = {
        "name": "Ada ü",
        "age": None,
        "photo": b"\xff\x00",
        "seen": datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
        "born": date(1815, 12, 10),
        "owes": Decimal("-12.50"),
        "id": UUID(int=1),
        "tags": {"a": 1.5},
    }

    found = process.decode(avro(USER), written(USER, value))

    assert isinstance(found, Decoded)
    assert (found.schema_id, found.schema_type) == (7, SchemaType.AVRO)
    assert shown(found) == {
        "name": "Ada ü",
        "age": None,
        "photo": "/wA=",
        "seen": "2026-01-02T03:04:05.678000Z",
        "born": "1815-12-10",
        "owes": "-12.50",
        "id": "00000000-0000-0000-0000-000000000001",
        "tags": {"a": 1.5},
    }


@pytest.mark.parametrize(
    ("schema", "data", "expected"),
    [
        ("geo.City", OSLO, {"land": "NO", "name": "Oslo"}),
        (
            {"type": "array", "items": "geo.City"},
            b"\x02" + OSLO + b"\0",
            [{"land": "NO", "name": "Oslo"}],
        ),
        (["null", "geo.City"], b"\x02" + OSLO, {"land": "NO", "name": "Oslo"}),
    ],
)
def test_a_schema_in_avro_may_refer_to_others(
    process: DecodingProcess, schema: object, data: bytes, expected: object
) -> None:
    land = {"type": "enum", "name": "geo.Land", "symbols": ["UK", "NO"]}
    fields = [{"name": "land", "type": "geo.Land"}, {"name": "name", "type": "string"}]
    city = {"type": "record", "name": "geo.City", "fields": fields}
    references = (Named("geo.Land", json.dumps(land)), Named("geo.City", json.dumps(city)))

    assert shown(process.decode(avro(schema, *references), with_header(7, data))) == expected


@pytest.mark.parametrize("text", ['"string"', "string", '{"type": "string"}'])
def test_a_schema_in_avro_may_be_a_simple_type(process: DecodingProcess, text: str) -> None:
    schema = Schema(id=7, type=SchemaType.AVRO, text=text)
    assert shown(process.decode(schema, with_header(7, b"\x06ada"))) == "ada"


def test_bytes_that_do_not_fit_the_schema_are_no_value(process: DecodingProcess) -> None:
    schema = avro("string")
    longer = (b"\x06ada!", "more follows the value: 1 bytes")
    for data, said in ((b"\x06ad", "Expected 3 bytes"), longer, (b"", "")):
        found = process.decode(schema, with_header(7, data))
        assert code_of(found) == BAD_VALUE
        assert isinstance(found, Undecoded)
        assert found.reason.startswith("the bytes are no value of schema 7: ")
        assert said in found.reason


@pytest.mark.parametrize(
    "schema",
    [
        Schema(id=7, type=SchemaType.AVRO, text='{"type": "record"}'),
        Schema(id=7, type=SchemaType.AVRO, text="{"),
        Schema(id=7, type=SchemaType.AVRO, text="[" * 100_000),
        Schema(
            id=7,
            type=SchemaType.AVRO,
            text='{"type":"array","items":' * 3_000 + '"int"' + "}" * 3_000,
        ),
        avro("geo.City"),
        proto("message {"),
        proto('syntax = "proto3"; import "nowhere.proto";'),
        proto('syntax = "proto3"; import "../up.proto";', Named("../up.proto", CITY)),
        proto('syntax = "proto3";', Named("a\0b.proto", CITY)),
        proto("message A {" * 10_000),
        proto(
            b64encode(
                FileDescriptorProto(dependency=["nowhere.proto"]).SerializeToString()
            ).decode()
        ),
        proto(
            b64encode(
                FileDescriptorProto(dependency=["google/protobuf/none.proto"]).SerializeToString()
            ).decode()
        ),
        proto(PROTO, Named("geo/city.proto", b64encode(b"\x0a\x01x").decode())),
    ],
)
def test_a_schema_that_makes_no_sense_is_refused(process: DecodingProcess, schema: Schema) -> None:
    assert code_of(process.decode(schema, with_header(7, b"\0\0\0"))) == UNSUPPORTED_SCHEMA
    assert shown(process.decode(avro("int"), with_header(7, b"\x02"))) == 1


def user_in_protobuf(path: bytes) -> bytes:
    seen = Timestamp(seconds=5).SerializeToString()
    fields = b"\x0a\x03ada" + b"\x10\x80\x80\x80\x80\x80\x80\x80\x80\x10" + b"\x1a\x06\x0a\x04Oslo"
    return with_header(7, path + fields + b"\x22" + bytes([len(seen)]) + seen + b"\x2a\x01\xff")


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_value_in_protobuf_is_readable_json(process: DecodingProcess, is_compiled: bool) -> None:
    schema = proto(PROTO, Named("geo/city.proto", CITY))
    if is_compiled:
        schema = compiled(schema)
    found = shown(process.decode(schema, user_in_protobuf(zigzag(1) + zigzag(1))))

    assert found == {
        "name": "ada",
        "id": "1152921504606846976",
        "city": {"name": "Oslo"},
        "seen": "1970-01-01T00:00:05Z",
        "photo": "/w==",
        "numbers": [],
    }
    inner = with_header(7, zigzag(2) + zigzag(1) + zigzag(0) + b"\x0a\x01q")
    assert shown(process.decode(schema, inner)) == {"x": "q"}
    assert shown(process.decode(schema, with_header(7, b"\0\x08\x05"))) == {"a": 5}


def compiled(schema: Schema) -> Schema:
    """Returns the schema as Python's serializer registers it."""
    from schemas.protobuf_values import _compile

    named = [*schema.references, Named("kompakt-schema.proto", schema.text)]
    files = {each.name: b64encode(each.SerializeToString()).decode() for each in _compile(named)}
    text = files.pop("kompakt-schema.proto")
    return proto(text, *(Named(each.name, files[each.name]) for each in schema.references))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (zigzag(1) + zigzag(9), "has no message 9"),
        (zigzag(2) + zigzag(1) + zigzag(4), "users.User has no message 4 inside it"),
        (zigzag(2) + zigzag(2) + zigzag(0), "differently, because of its maps"),
        (zigzag(1) + zigzag(1) + b"\x0a\x05ada", "it is no users.User"),
        (
            zigzag(1) + zigzag(1) + b"\x22\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
            "no users.User",
        ),
    ],
)
def test_bytes_that_are_no_such_message_are_no_value(
    process: DecodingProcess, data: bytes, said: str
) -> None:
    schema = proto(PROTO, Named("geo/city.proto", CITY))
    found = process.decode(schema, with_header(7, data))
    assert code_of(found) == BAD_VALUE
    assert isinstance(found, Undecoded)
    assert said in found.reason


def test_a_value_in_json_stays_as_it_is_on_one_line(process: DecodingProcess) -> None:
    schema = Schema(id=7, type=SchemaType.JSON, text="{}")
    found = process.decode(schema, with_header(7, '{"a":\n [1.50, "ü"]}'.encode()))
    assert isinstance(found, Decoded)
    assert found.json == '{"a":[1.50,"ü"]}'.encode()
    for data in (b"", b"{", b"\xff", b'{"a": NaN}', b"[" * 1_000_000, b"1 2"):
        assert code_of(process.decode(schema, with_header(7, data))) == BAD_VALUE


def test_a_value_that_is_nested_too_deeply_ends_only_the_process(process: DecodingProcess) -> None:
    deep = with_header(7, b"\x02" * 1_000_000 + b"\0")

    found = process.decode(avro(CHAIN), deep)

    assert code_of(found) == TOO_COMPLEX
    assert isinstance(found, Undecoded)
    assert "nested too deeply" in found.reason
    assert shown(process.decode(avro(CHAIN), with_header(7, b"\x02\0"))) == {"next": {"next": None}}


def test_a_value_that_takes_too_long_is_given_up(process: DecodingProcess) -> None:
    """To write a binary number of a million bytes in decimal takes many seconds, in C code."""
    large = {"type": "bytes", "logicalType": "decimal", "precision": 100_000_000, "scale": 0}
    data = zigzag(1_000_000) + b"\x7f" * 1_000_000

    found = process.decode(avro(large), with_header(7, data))

    assert isinstance(found, Undecoded)
    assert (found.code, "took too much time" in found.reason) == (TOO_COMPLEX, True)


def test_the_system_bounds_the_memory_of_the_process(process: DecodingProcess) -> None:
    process.decode(avro("int"), with_header(7, b"\x02"))
    assert process._child is not None
    most = resource.prlimit(process._child.pid, resource.RLIMIT_AS)
    assert most == (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX)


def test_a_value_that_has_ended_the_process_is_not_given_to_another_one(
    process: DecodingProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding_process, "REMEMBERED_MAX", 2)
    bombs = [with_header(7, b"\x02" * (1_000_000 + number) + b"\0") for number in range(3)]
    first = [process.decode(avro(CHAIN), each) for each in bombs]
    process.decode(avro("int"), with_header(7, b"\x02"))
    child = process._child

    assert process.decode(avro(CHAIN), bombs[2]) == first[2]
    assert process._child is child, "it is still there"
    assert process.decode(avro(CHAIN), bombs[0]) == first[0]
    assert process._child is not child, "the oldest is forgotten"


def test_the_process_has_no_secrets_and_leaves_no_files(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "s3cret")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    process = DecodingProcess()
    # Compiling such a schema takes a folder.
    process.decode(proto(PROTO, Named("geo/city.proto", CITY)), with_header(7, b"\0"))
    assert process._child is not None
    environment = Path(f"/proc/{process._child.pid}/environ").read_bytes()
    (scratch,) = tmp_path.iterdir()
    process.close()

    assert b"s3cret" not in environment
    assert str(scratch).encode() in environment
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("items", ["null", {"type": "fixed", "name": "F", "size": 0}])
def test_a_short_value_that_is_a_very_long_list_is_given_up(
    process: DecodingProcess, items: object
) -> None:
    schema, began = avro({"type": "array", "items": items}), time.monotonic()
    bomb = with_header(7, b"\x80\x80\x80\x80\x80\x80\x80\x80\x10" + b"\0")

    assert code_of(process.decode(schema, bomb)) == TOO_COMPLEX
    assert time.monotonic() - began < 10 * CPU_SECONDS_MAX
    longer = with_header(7, b"\x80\x92\xf4\x01" + b"\0")
    assert code_of(process.decode(schema, longer)) == TOO_LARGE
    assert shown(process.decode(avro("int"), with_header(7, b"\x02"))) == 1


def test_a_process_that_was_killed_is_started_again(process: DecodingProcess) -> None:
    process.decode(avro("int"), with_header(7, b"\x02"))
    assert process._child is not None
    os.kill(process._child.pid, signal.SIGKILL)
    process._child.wait()

    process.decode(avro("int"), with_header(7, b"\x02"))
    assert shown(process.decode(avro("int"), with_header(7, b"\x02"))) == 1


def test_a_process_that_gets_no_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding_process, "ANSWER_SECONDS_MAX", 1.0)
    process = DecodingProcess()
    try:
        process.decode(avro("int"), with_header(7, b"\x02"))
        assert process._child is not None
        os.kill(process._child.pid, signal.SIGSTOP)
        found = process.decode(avro("int"), with_header(7, b"\x02"))
        assert isinstance(found, Undecoded)
        assert "gives no answer within 1 s" in found.reason
        assert shown(process.decode(avro("int"), with_header(7, b"\x02"))) == 1
    finally:
        process.close()


def test_the_process_ends_with_its_parent() -> None:
    process = DecodingProcess()
    process.decode(avro("int"), with_header(7, b"\x02"))
    child: subprocess.Popen[bytes] | None = process._child
    assert child is not None
    assert process._peer is not None
    process._peer.close()

    assert child.wait(20) == 0
    process.close()


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "schemas.avro_values", None)
    answer = ask(avro("long", schema_id=12345), with_header(7, b"\x02"))
    assert answer.code == NOT_INSTALLED
    assert 'pip install "kompakt[schemas]"' in answer.reason


def ask(schema: Schema, data: bytes) -> Answer:
    """Returns the answer of the process, made in this one."""
    import msgspec

    return answer_to(msgspec.msgpack.encode(Request(schema, data)))


FUZZED = (
    avro(USER),
    avro({"type": "array", "items": ["null", "long", USER]}),
    proto(PROTO, Named("geo/city.proto", CITY)),
    Schema(id=7, type=SchemaType.JSON, text="{}"),
)


@settings(max_examples=300, deadline=None)
@given(schema=st.sampled_from(FUZZED), data=st.binary(max_size=60))
def test_any_bytes_are_decoded_or_refused_with_a_declared_code(schema: Schema, data: bytes) -> None:
    answer = ask(schema, with_header(7, data))
    if answer.code:
        assert answer.code in {BAD_VALUE, TOO_LARGE, TOO_COMPLEX}
        assert 0 < len(answer.reason) < 600
    else:
        json.loads(answer.json)


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=80), kind=st.sampled_from([SchemaType.AVRO, SchemaType.PROTOBUF]))
def test_any_text_as_a_schema_is_refused_with_a_declared_code(text: str, kind: SchemaType) -> None:
    answer = ask(Schema(id=7, type=kind, text=text), with_header(7, b"\0\0"))
    assert answer.code in {"", BAD_VALUE, UNSUPPORTED_SCHEMA}


def test_the_compiler_leaves_nothing_behind(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    protobuf_decoder(proto(PROTO, Named("geo/city.proto", CITY)))
    assert list(tmp_path.iterdir()) == []
