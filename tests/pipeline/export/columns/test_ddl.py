"""Schemas in Spark's DDL and in its JSON form become columns, or are refused with one sentence."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from pipeline.export.columns.ddl import read_columns
from pipeline.offsets.cut import TableRefused

READ = {
    "id BIGINT NOT NULL, note STRING COMMENT 'it''s'": "id: int64, note: string",
    'a: INT, `a b` STRING, `a``b` LONG COMMENT "x"': "a: int32, a b: string, a`b: int64",
    "a BYTE, b SHORT, c REAL, d DOUBLE": "a: int8, b: int16, c: float, d: double",
    "a DEC, b NUMERIC(5), c DECIMAL(5, 2)": (
        "a: decimal128(10, 0), b: decimal128(5, 0), c: decimal128(5, 2)"
    ),
    "a DATE, b TIMESTAMP, c TIMESTAMP_LTZ, d TIMESTAMP_NTZ": (
        "a: date32[day], b: timestamp[us, tz=UTC], c: timestamp[us, tz=UTC], d: timestamp[us]"
    ),
    "a STRUCT<x INT, y: ARRAY<MAP<STRING, BINARY>>>": (
        "a: struct<x: int32, y: list<item: map<string, binary>>>"
    ),
    "from INT, select INT, timestamp STRING, unique STRING, 1a INT, array INT": (
        "from: int32, select: int32, timestamp: string, unique: string, 1a: int32, array: int32"
    ),
    "a INT -- the first\n, /* the\nsecond */ b BOOLEAN": "a: int32, b: bool",
    "struct<a:int>": "a: int32",
}


@pytest.mark.parametrize("text", READ)
def test_ddl_becomes_columns(text: str) -> None:
    found = read_columns("--value-schema", text)
    assert ", ".join(f"{field.name}: {field.type}" for field in found) == READ[text]
    assert all(field.nullable for field in found)


REFUSED = {
    "BIGINT": "must name fields, as in",
    "decimal(5, 2)": "must name fields, as in",
    "": "syntax error at the end",
    "a": "no column has the type a",
    "a INT,": "syntax error at the end",
    "a INT b INT": "syntax error at 'b'",
    "a INT DEFAULT 5": "syntax error at 'DEFAULT'",
    "a TIMESTAMP WITHOUT TIME ZONE": "syntax error at 'WITHOUT'",
    "a INT>, b STRUCT<c: INT": "syntax error at '>'",
    "a ARRAY<INT NOT NULL>": "syntax error at 'NOT'",
    "a STRING COLLATE UTF8_LCASE": "syntax error at 'COLLATE'",
    "a STRUCT<>": "syntax error at '>'",
    "a INTT": "no column has the type intt",
    "a VARCHAR(3)": "no column has the type varchar",
    "a VARIANT": "no column has the type variant",
    "a DECIMAL(39, 0)": r"DECIMAL\(39, 0\) is no type",
    "a DECIMAL(5, 6)": r"DECIMAL\(5, 6\) is no type",
    "a INT, A STRING": "two fields are named a",
    "a STRUCT<x: INT, X: INT>": "two fields are named x",
    "a-b INT": "'-b INT' must stand in `backquotes`",
    "a INT;": "';' must stand in `backquotes`",
    "a " + "ARRAY<" * 60 + "INT" + ">" * 60: "nested deeper than 50",
    "{": "cannot be read",
    '{"type": "struct"}': "cannot be read",
    '{"type": "udt"}': "it has the type udt",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_schema_is_refused_with_one_sentence(text: str) -> None:
    with pytest.raises(TableRefused, match=REFUSED[text]) as refused:
        read_columns("--value-schema", text)
    assert str(refused.value).startswith("--value-schema ")
    assert "\n" not in str(refused.value)


def test_sparks_json_form_of_a_struct_becomes_columns() -> None:
    def field(name: str, kind: object) -> dict[str, object]:
        return {"name": name, "type": kind, "nullable": False, "metadata": {}}

    inner = {"type": "struct", "fields": [field("x", "decimal(5,2)"), field("y", "decimal")]}
    kinds = {
        "a": "long",
        "b": {"type": "array", "elementType": inner, "containsNull": True},
        "c": {"type": "map", "keyType": "string", "valueType": "date", "valueContainsNull": True},
    }
    whole = {"type": "struct", "fields": [field(*each) for each in kinds.items()]}

    found = read_columns("--value-schema", json.dumps(whole))

    struct = pa.struct([("x", pa.decimal128(5, 2)), ("y", pa.decimal128(10, 0))])
    assert found == pa.schema(
        [("a", pa.int64()), ("b", pa.list_(struct)), ("c", pa.map_(pa.string(), pa.date32()))]
    )
