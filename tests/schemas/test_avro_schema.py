"""A schema with references becomes one text that means the same."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from schemas.avro_schema import (
    NESTED_MAX,
    column_aliases,
    column_defaults,
    field_paths,
    missing_fields,
    record_of_fields,
    whole_avro_schema,
    with_aliases,
)
from schemas.outcomes import UnsupportedSchema
from schemas.schema import Named, Schema, SchemaType

CITY = {
    "type": "record",
    "name": "City",
    "namespace": "geo",
    "fields": [{"name": "name", "type": "string"}, {"name": "kind", "type": "Kind"}],
}
KIND = {"type": "enum", "name": "geo.Kind", "symbols": ["BIG", "SMALL"]}
PERSON = {
    "type": "record",
    "name": "Person",
    "namespace": "people",
    "fields": [
        {"name": "home", "type": "geo.City"},
        {"name": "others", "type": {"type": "array", "items": "geo.City"}},
        {"name": "by_year", "type": {"type": "map", "values": ["null", "geo.Kind"]}},
        {"name": "boss", "type": ["null", "Person"]},
    ],
}


def schema(text: Any, *references: tuple[str, Any]) -> Schema:
    return Schema(
        id=1,
        type=SchemaType.AVRO,
        text=text if isinstance(text, str) else json.dumps(text),
        references=tuple(Named(name, json.dumps(each)) for name, each in references),
    )


def test_each_named_type_stands_where_it_is_used_first() -> None:
    whole = json.loads(whole_avro_schema(schema(PERSON, ("geo.Kind", KIND), ("geo.City", CITY))))
    value = {
        "home": {"name": "Bonn", "kind": "SMALL"},
        "others": [{"name": "Rome", "kind": "BIG"}],
        "by_year": {"1999": "BIG"},
        "boss": None,
    }
    written = io.BytesIO()
    parsed = fastavro.parse_schema(whole)
    fastavro.schemaless_writer(written, parsed, value)
    written.seek(0)

    assert fastavro.schemaless_reader(written, parsed, None) == value


def test_a_type_without_a_namespace_gets_that_of_its_first_place() -> None:
    address = {"type": "record", "name": "Address", "fields": [{"name": "zip", "type": "int"}]}
    field = {"name": "at", "type": "Address"}
    invoice = {"type": "record", "name": "com.y.Inv", "fields": [field]}
    order = {
        "type": "record",
        "name": "com.x.Order",
        "fields": [field, field | {"name": "too"}, {"name": "invoice", "type": "com.y.Inv"}],
    }
    whole = whole_avro_schema(schema(order, ("Address", address), ("com.y.Inv", invoice)))
    written = io.BytesIO()
    value = {"at": {"zip": 1}, "too": {"zip": 3}, "invoice": {"at": {"zip": 2}}}
    fastavro.schemaless_writer(written, fastavro.parse_schema(json.loads(whole)), value)
    assert written.getvalue() == b"\x02\x06\x04"


def test_a_type_that_cannot_be_named_from_a_place_is_refused() -> None:
    address = {"type": "record", "name": "Address", "fields": [{"name": "zip", "type": "int"}]}
    field = {"name": "at", "type": "Address"}
    invoice = {"type": "record", "name": "com.y.Inv", "fields": [field]}
    order = {
        "type": "record",
        "name": "Order",
        "fields": [field, {"name": "invoice", "type": "com.y.Inv"}],
    }
    with pytest.raises(
        UnsupportedSchema, match=r"Address, which has no namespace, inside of com\.y"
    ):
        whole_avro_schema(schema(order, ("Address", address), ("com.y.Inv", invoice)))


@pytest.mark.parametrize("text", ['"string"', "string", '{"type": "long", "logicalType": "x"}'])
def test_a_schema_without_references_means_the_same(text: str) -> None:
    expected = "string" if text == "string" else json.loads(text)
    assert json.loads(whole_avro_schema(schema(text))) == expected


@pytest.mark.parametrize("text", ["{", "7", '{"name": "x"}', '{"type": "array"}'])
def test_what_is_no_schema_is_refused_as_such(text: str) -> None:
    with pytest.raises(UnsupportedSchema, match="it is no Avro schema"):
        whole_avro_schema(schema(text))


def test_deep_nesting_is_refused() -> None:
    text = '{"type": "array", "items": ' * (NESTED_MAX + 1) + '"int"' + "}" * (NESTED_MAX + 1)
    with pytest.raises(UnsupportedSchema, match="nested deeper"):
        whole_avro_schema(schema(text))


ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "kinds", "type": {"type": "array", "items": "Kind"}},
        {"name": "inner", "type": ["null", {"type": "fixed", "name": "other.Two", "size": 2}]},
    ],
}
EVENT = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.orders",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "source", "type": {"type": "record", "name": "x.Source", "fields": []}},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "moved", "type": ["null", "shop.orders.Value"]},
        {"name": "op", "type": "string"},
    ],
}


def test_who_reads_some_fields_of_a_record_reads_nothing_else() -> None:
    row = {"kind": "B", "kinds": ["A", "B"], "inner": b"hi"}
    value = {"before": row, "source": {}, "after": row, "moved": None, "op": "u"}
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(EVENT), value)

    for names in (["op", "after"], ["after", "moved"], ["moved", "before", "after"], ["op"]):
        reader = json.loads(record_of_fields(json.dumps(EVENT), names))
        written.seek(0)
        found = fastavro.schemaless_reader(written, EVENT, fastavro.parse_schema(reader))
        assert found == {name: value[name] for name in names}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (json.dumps(EVENT | {"fields": EVENT["fields"][:2]}), "it has no field after"),
        (json.dumps(["null", EVENT]), "it is no record in Avro"),
        ('"string"', "it is no record in Avro"),
        ("{", "it is no record in Avro"),
        (json.dumps({"type": "record", "name": "E", "fields": [{"name": "after"}]}), "no record"),
    ],
)
def test_what_has_not_these_fields_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(UnsupportedSchema, match=sentence):
        record_of_fields(text, ["after"])


def test_the_paths_of_fields_lead_through_all_that_is_nested() -> None:
    assert field_paths(json.dumps(ROW)) == {"kind", "kinds", "inner"}
    assert field_paths(json.dumps(EVENT)) >= {"after", "after.kind", "before.kinds", "op", "source"}
    tree: dict[str, Any] = {"type": "record", "name": "Tree", "aliases": ["Old"]}
    tree["fields"] = [
        {"name": "left", "type": ["null", "Tree"], "aliases": ["l"]},
        {"name": "leaves", "type": {"type": "map", "values": {"type": "array", "items": "Tree"}}},
    ]
    assert field_paths(json.dumps(tree)) == {"left", "leaves"}
    assert field_paths(json.dumps(tree), with_aliases=True) == {"left", "l", "leaves"}
    assert field_paths('"long"') == frozenset()
    with pytest.raises(UnsupportedSchema):
        field_paths("{")


def record_with(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": list(fields)})


ID: dict[str, Any] = {"name": "id", "type": "long"}


@pytest.mark.parametrize(
    ("added", "missing"),
    [
        ({"name": "city", "type": "string"}, ["city"]),
        ({"name": "city", "type": ["null", "string"]}, ["city"]),
        ({"name": "city", "type": ["null", "string"], "default": None}, []),
        ({"name": "city", "type": "string", "default": ""}, []),
        ({"name": "number", "type": "long", "aliases": ["id"]}, []),
        (
            {
                "name": "at",
                "type": {"type": "record", "name": "A", "fields": [ID]},
                "default": {"id": 1},
            },
            [],
        ),
    ],
)
def test_a_reader_misses_what_has_no_default(added: dict[str, Any], missing: list[str]) -> None:
    assert missing_fields(record_with(ID), record_with(ID, added)) == missing


def test_a_reader_misses_what_a_nested_record_lacks() -> None:
    def nested(*fields: dict[str, Any]) -> str:
        inner = {"type": "record", "name": "A", "fields": list(fields)}
        return record_with({"name": "at", "type": ["null", inner]})

    assert missing_fields(nested(ID), nested(ID, {"name": "x", "type": "int"})) == ["at.x"]
    assert missing_fields(nested(ID, {"name": "x", "type": "int"}), nested(ID)) == []


def test_the_defaults_of_a_record_are_those_that_are_not_null() -> None:
    fields: tuple[dict[str, Any], ...] = (
        {"name": "a", "type": "string", "default": "x"},
        {"name": "b", "type": "int", "default": 0},
        {"name": "c", "type": ["null", "int"], "default": None},
        ID,
    )
    inner = {"type": "record", "name": "A", "fields": list(fields)}
    assert column_defaults(record_with(*fields)) == {"a": "x", "b": 0}
    around = record_with({"name": "after", "type": ["null", inner], "default": None})
    assert column_defaults(around, within="after") == {"a": "x", "b": 0}
    assert column_defaults(around) == {}


def test_aliases_are_added_to_those_that_a_field_has() -> None:
    fields = [ID, {"name": "b", "type": "int", "aliases": ["x"]}]
    inner = {"type": "record", "name": "A", "fields": fields}
    around = record_with({"name": "after", "type": ["null", inner], "default": None})
    assert column_aliases(around, within="after") == {"b": ["x"]}

    more = with_aliases(around, {"b": ["y"], ID["name"]: ["z"]}, within="after")
    assert column_aliases(more, within="after") == {"b": ["x", "y"], ID["name"]: ["z"]}
    with pytest.raises(UnsupportedSchema, match="it has no field c"):
        with_aliases(around, {"c": ["y"]}, within="after")
    for text in ('"int"', '{"type": "record", "name": "A"}', "{"):
        with pytest.raises(UnsupportedSchema, match="no record"):
            with_aliases(text, {"c": ["y"]})
    with pytest.raises(UnsupportedSchema, match="no record"):
        with_aliases(record_with(ID), {"c": ["y"]}, within="after")
