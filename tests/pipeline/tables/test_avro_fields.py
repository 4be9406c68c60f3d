"""What a schema says of columns besides their types: defaults, and the names that they had before."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipeline.offsets.cut import TableRefused
from pipeline.tables.avro_fields import (
    former_names,
    refuse_defaults,
    with_former_names,
)
from pipeline.tables.payload_options import Envelope, Payload, PayloadFormat
from pipeline.tables.typed_payload import value_schema_of

ROW = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "city", "type": "string", "aliases": ["town"], "default": "Bern"},
    ],
}
EVENT = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Row"]},
        {"name": "source", "type": "string"},
        {"name": "op", "type": "string"},
    ],
}
SCHEMAS = {Envelope.NONE: json.dumps(ROW), Envelope.DEBEZIUM: json.dumps(EVENT)}


def payload(envelope: Envelope, **settings: Any) -> Payload:
    said = {"value_format": PayloadFormat.AVRO, "value_schema": SCHEMAS[envelope]}
    return Payload(envelope=envelope, **{**said, **settings})


@pytest.mark.parametrize("envelope", SCHEMAS)
def test_the_names_before_are_aliases_and_what_the_user_says(envelope: Envelope) -> None:
    assert former_names(payload(envelope)) == {"city": ["town"]}
    renamed = {"place": "city", "number": "id", "nr": "id"}
    schema = with_former_names(SCHEMAS[envelope], envelope, renamed)
    assert former_names(payload(envelope, value_schema=schema)) == {
        "city": ["town", "place"],
        "id": ["number", "nr"],
    }
    # Without a registry it is also the schema by which values are written.
    written = json.loads(SCHEMAS[envelope])
    assert [each["name"] for each in json.loads(schema)["fields"]] == [
        each["name"] for each in written["fields"]
    ]
    with pytest.raises(TableRefused, match="--renamed does not fit --value-schema: it has no fie"):
        with_former_names(SCHEMAS[envelope], envelope, {"a": "b"})


def test_columns_that_are_computed_had_no_names_before() -> None:
    assert former_names(payload(Envelope.NONE, select=("city",))) == {}
    json_payload = Payload(value_format=PayloadFormat.JSON, value_schema="id INT")
    assert former_names(json_payload) == {}


@pytest.mark.parametrize("envelope", SCHEMAS)
def test_a_renamed_column_is_not_a_new_one_with_a_default(envelope: Envelope) -> None:
    rows = ["key", "id", "city"]
    refuse_defaults(["key", "id", "town"], rows, payload(envelope))
    refuse_defaults(["key", "id", "city"], rows, payload(envelope))
    with pytest.raises(TableRefused, match='column city is new and has the default "Bern"'):
        refuse_defaults(["key", "id"], rows, payload(envelope))


def test_other_names_need_avro() -> None:
    said = {"value_format": PayloadFormat.JSON, "envelope": Envelope.NONE}
    assert value_schema_of("id INT", said, {}) == "id INT"
    with pytest.raises(TableRefused, match="--renamed goes with values in Avro"):
        value_schema_of("id INT", said, {"a": "b"})
    with pytest.raises(TableRefused, match="--renamed goes with values in Avro"):
        value_schema_of(None, said | {"value_format": PayloadFormat.AVRO}, {"a": "b"})
