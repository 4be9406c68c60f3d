"""Values that Confluent's serializers have written with a real registry, read through `get` as JSON."""

from __future__ import annotations

import json
import urllib.request
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

from pipeline.spark.jars import JarsUnavailable
from tests.harness.apicurio_registry import java_command, registry_url, running_registry
from tests.harness.broker_process import BrokerProcess, free_ports
from tests.harness.clients import create_topic
from tests.harness.fake_registry import with_header

TOPIC = "users"
USER_PROTO = """
syntax = "proto3";
package users;
import "geo.proto";
import "google/protobuf/timestamp.proto";
message Unused { int32 a = 1; }
message User {
  string name = 1;
  int64 id = 2;
  geo.City city = 3;
  google.protobuf.Timestamp seen = 4;
  map<string, bool> flags = 5;
}
"""
CITY_PROTO = 'syntax = "proto3";\npackage geo;\nmessage City { string name = 1; }\n'
USER_JSON = {
    "name": "ada",
    "id": "1152921504606846976",
    "city": {"name": "London"},
    "seen": "2026-01-02T03:04:05Z",
    "flags": {"a": True},
}


class Site:
    """A broker that keeps the schemas of its own registry, and clients of both."""

    def __init__(self, broker: BrokerProcess, registry: SchemaRegistryClient) -> None:
        self.broker = broker
        self.registry = registry
        create_topic(broker.bootstrap_servers, TOPIC, config={"cleanup.policy": "compact"})
        self._producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    def put(self, key: bytes, value: bytes | None) -> None:
        self._producer.produce(TOPIC, key=key, value=value)
        assert self._producer.flush(60) == 0

    def get(self, key: bytes) -> Any:
        named = urlsafe_b64encode(key).decode()
        return json.loads(self.read(f"keys/{named}?key_encoding=base64url"))

    def read(self, path: str) -> bytes:
        url = f"http://127.0.0.1:{self.broker.http_port}/v1/topics/{TOPIC}/{path}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            data: bytes = answer.read()
            return data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    try:
        java_command()
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    (port,) = free_ports(1)
    folder = tmp_path_factory.mktemp("registry")
    with (
        BrokerProcess(folder, {"schema.registry.url": registry_url(port)}) as broker,
        running_registry(broker.bootstrap_servers, port) as url,
        SchemaRegistryClient({"url": url}) as registry,
    ):
        yield Site(broker, registry)


def context(subject: str, field: str = MessageField.VALUE) -> SerializationContext:
    """Returns what a serializer names its schema by: each test has its own."""
    return SerializationContext(subject, field)


def message_class(folder: Path) -> Any:
    """Returns the class of `users.User`, as protoc makes it."""
    (folder / "user.proto").write_text(USER_PROTO)
    (folder / "geo.proto").write_text(CITY_PROTO)
    own = Path(protoc.__file__).parent / "_proto"
    output = folder / "compiled"
    words = ["", f"-I{folder}", f"-I{own}", f"-o{output}", "--include_imports", "user.proto"]
    assert protoc.main(words) == 0
    pool = DescriptorPool()
    for each in FileDescriptorSet.FromString(output.read_bytes()).file:
        pool.Add(each)
    return GetMessageClass(pool.FindMessageTypeByName("users.User"))


def user_message(folder: Path) -> Any:
    user = message_class(folder)(name="ada", id=2**60, flags={"a": True})
    user.city.name = "London"
    user.seen.FromDatetime(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    return user


def test_values_of_the_avro_serializer_are_decoded(site: Site) -> None:
    city = {"type": "record", "name": "geo.City", "fields": [{"name": "name", "type": "string"}]}
    site.registry.register_schema("geo.City", Schema(json.dumps(city), "AVRO"))
    fields = [
        {"name": "city", "type": ["null", "geo.City"]},
        {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "born", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "owes",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "photo", "type": "bytes"},
    ]
    text = json.dumps({"type": "record", "name": "User", "fields": fields})
    schema = Schema(text, "AVRO", [SchemaReference("geo.City", "geo.City", 1)])
    user = {
        "city": {"name": "London"},
        "seen": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "born": date(1815, 12, 10),
        "owes": Decimal("1.25"),
        "id": UUID(int=7),
        "photo": b"\xff",
    }
    site.put(b"avro", AvroSerializer(site.registry, schema)(user, context("avro")))

    found = site.get(b"avro")
    assert found["schema"]["type"] == "AVRO"
    assert found["value"] == {
        "city": {"name": "London"},
        "seen": "2026-01-02T03:04:05Z",
        "born": "1815-12-10",
        "owes": "1.25",
        "id": str(UUID(int=7)),
        "photo": "/w==",
    }


def test_keys_of_the_avro_serializer_are_shown_decoded(site: Site) -> None:
    serialize = AvroSerializer(site.registry, '{"type": "long"}')
    key = serialize(4711, context("keys", MessageField.KEY))
    assert key is not None
    site.put(key, b"text")

    found = site.get(key)
    assert (found["decoded_key"], found["key_schema"]["type"]) == (4711, "AVRO")
    assert found["value"] == "text"


def test_values_of_the_protobuf_serializer_are_decoded(site: Site, tmp_path: Path) -> None:
    user = user_message(tmp_path)
    config = {"use.deprecated.format": False}
    site.put(
        b"proto", ProtobufSerializer(type(user), site.registry, config)(user, context("proto"))
    )

    found = site.get(b"proto")
    assert found["schema"]["type"] == "PROTOBUF"
    assert found["value"] == USER_JSON


def test_values_with_a_protobuf_schema_that_is_text_are_decoded(site: Site, tmp_path: Path) -> None:
    """Java's serializer registers text. The value is the same."""
    site.registry.register_schema("geo-text", Schema(CITY_PROTO, "PROTOBUF"))
    schema = Schema(USER_PROTO, "PROTOBUF", [SchemaReference("geo.proto", "geo-text", 1)])
    schema_id = site.registry.register_schema("users-text", schema)
    second_message = b"\x02\x02"
    data = second_message + user_message(tmp_path).SerializeToString()
    site.put(b"proto-text", with_header(schema_id, data))

    found = site.get(b"proto-text")
    assert found["schema"] == {"id": schema_id, "type": "PROTOBUF"}
    assert found["value"] == USER_JSON


def test_values_of_the_json_serializer_are_decoded(site: Site) -> None:
    schema = {"title": "User", "type": "object", "properties": {"name": {"type": "string"}}}
    serialize = JSONSerializer(json.dumps(schema), site.registry)
    site.put(b"json", serialize({"name": "ada", "n": 1.5}, context("json")))

    found = site.get(b"json")
    assert found["schema"]["type"] == "JSON"
    assert found["value"] == {"name": "ada", "n": 1.5}


def test_a_schema_that_the_registry_does_not_have_is_named(site: Site) -> None:
    site.put(b"unknown", with_header(999_999, b"\xff"))

    found = site.get(b"unknown")
    assert found["value"] == b64encode(with_header(999_999, b"\xff")).decode()
    assert found["undecoded"]["code"] == "unknown_schema"


def test_changes_are_decoded(site: Site) -> None:
    serialize = AvroSerializer(site.registry, '{"type": "string"}')
    site.put(b"change", serialize("ada", context("changes")))

    text = site.read("changes?follow=false").decode()
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    (found,) = [each for each in events if each.get("key") == "change"]
    assert (found["value"], found["value_encoding"]) == ("ada", "json")
