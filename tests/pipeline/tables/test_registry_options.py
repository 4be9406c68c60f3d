"""A registry's address, login and subjects on the command line of a job; nothing here starts Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from pipeline.offsets.cut import TableRefused
from pipeline.tables.registry_options import ReaderSchema, reader_schema, registry_access
from schemas.schema import SchemaType
from tests.harness.fake_registry import FakeRegistry, Referred


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    fake = FakeRegistry()
    fake.add('"string"', subject="note")
    fake.add('"long"', subject="a%3Ab")
    fake.add('"int"', subject="a%3Ab")
    record = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "Note"}]}
    fake.add(json.dumps(record), subject="record", refers_to=[Referred("Note", "note")])
    fake.add('syntax = "proto3";', "PROTOBUF", subject="proto")
    with fake.served():
        yield fake


def read(
    registry: FakeRegistry, said: str | None, kind: SchemaType = SchemaType.AVRO
) -> str | None:
    return reader(registry, said, kind).text


def reader(registry: FakeRegistry, said: str | None, kind: SchemaType) -> ReaderSchema:
    access = registry_access([registry.url], None)
    return reader_schema("--value-schema", said, kind, access)


def test_a_subject_is_read_in_its_newest_version_or_in_the_one_that_is_said(
    registry: FakeRegistry,
) -> None:
    assert read(registry, None) is None
    assert read(registry, "id INT") == "id INT"
    assert read(registry, "subject:a:b") == '"int"'
    assert read(registry, "subject:a:b:latest") == '"int"'
    assert read(registry, "subject:a:b:1") == '"long"'


def test_a_subject_comes_with_all_that_it_refers_to(registry: FakeRegistry) -> None:
    found = json.loads(read(registry, "subject:record") or "")
    assert found["fields"] == [{"name": "n", "type": "string"}]


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("subject:none", "has no version latest of the subject none"),
        ("subject:note:9", "has no version 9 of the subject note"),
        ("subject:proto", "the registry has it as PROTOBUF"),
    ],
)
def test_a_subject_that_cannot_be_read_is_one_sentence(
    registry: FakeRegistry, said: str, sentence: str
) -> None:
    with pytest.raises(TableRefused, match=sentence) as refused:
        read(registry, said)
    assert str(refused.value).startswith(f"--value-schema {said}")
