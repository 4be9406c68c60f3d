"""What Spark 4.2 makes of JSON in a column of each type, and what a row reader makes of it.

`python -m pytest tests/pipeline/export/columns/test_as_spark.py` asks Spark again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any


class Refused:
    """Stands for a value that is not read."""

    def __repr__(self) -> str:
        return "REFUSED"


REFUSED = Refused()


@dataclass(frozen=True)
class Stricter:
    """Stands for what Spark reads, and a row reader refuses."""

    spark: Any


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


NOON = at(2024, 1, 2, 3, 4, 5)
LOCAL = datetime(2024, 1, 2, 3, 4, 5)  # noqa: DTZ001
TRANSCRIPT: dict[str, dict[str, Any]] = {
    "BIGINT": {
        "9223372036854775807": 2**63 - 1,
        "9223372036854775808": REFUSED,
        "-9223372036854775808": -(2**63),
        "-0": 0,
        '"1"': REFUSED,
        "1.0": REFUSED,
        "1e3": REFUSED,
        "true": REFUSED,
        '""': REFUSED,
        "null": None,
        "[1]": REFUSED,
        "{}": REFUSED,
    },
    "INT": {"2147483647": 2**31 - 1, "2147483648": REFUSED, "-2147483648": -(2**31)},
    "SMALLINT": {"32767": 32767, "32768": REFUSED},
    "TINYINT": {"127": 127, "128": Stricter(-128), "255": Stricter(-1), "-129": REFUSED},
    "BOOLEAN": {"true": True, '"true"': REFUSED, "1": REFUSED, '""': REFUSED},
    "DOUBLE": {
        "1": 1.0,
        "-0": 0.0,
        "-0.0": -0.0,
        "0.1": 0.1,
        "9007199254740993": 2.0**53,
        "123456789012345678901234567890": 1.2345678901234568e29,
        "1e-400": 0.0,
        "4.9e-324": 5e-324,
        '"NaN"': math.nan,
        '"Infinity"': math.inf,
        '"+INF"': math.inf,
        '"-INF"': -math.inf,
        '"-Infinity"': -math.inf,
        '"INF"': REFUSED,
        "NaN": Stricter(math.nan),
        "1e400": Stricter(math.inf),
        '"1.5"': REFUSED,
        '""': REFUSED,
        "true": REFUSED,
    },
    "FLOAT": {
        "1": 1.0,
        "-0": 0.0,
        "-0.0": -0.0,
        "0.1": 0.10000000149011612,
        "16777217": 16777216.0,
        "1.00000017881393432617187499": Stricter(1.0000001192092896),
        "1.00000017881393432617187501": Stricter(1.000000238418579),
        "1e39": Stricter(math.inf),
        "1e-50": Stricter(0.0),
        '"NaN"': math.nan,
        '"1"': REFUSED,
    },
    "STRING": {
        '"x"': "x",
        '""': "",
        "1": "1",
        "-0": "0",
        "1.0": "1.0",
        "1.10": "1.1",
        "1e3": "1000.0",
        "100000000.0": "1.0E8",
        "0.001": "0.001",
        "0.0001": "1.0E-4",
        "-12345678.5": "-1.23456785E7",
        "0.1234567890123456": Stricter("0.1234567890123456"),
        "1e20": Stricter("1.0E20"),
        "1E400": Stricter('"Infinity"'),
        "123456789012345678901234567890": "123456789012345678901234567890",
        "true": "true",
        "null": None,
        '{"b": 1,  "a":[1.50, "x\\u00e9\\/", null], "b":2}': '{"b":1,"a":[1.5,"xé/",null],"b":2}',
        "[1, 2 ,3]": "[1,2,3]",
        "[]": "[]",
        '{"n":-0,"x":9007199254740993}': '{"n":0,"x":9007199254740993}',
        '{"c":"\\u0001\\u001f\\n\\u007f\\u2028\\ud83d\\ude00\\""}': (
            '{"c":"\\u0001\\u001F\\n\x7f\u2028\\uD83D\\uDE00\\""}'
        ),
        '"\\u0000"': "\0",
        '"\\ud83d\\ude00"': "\U0001f600",
        '"\\ud800"': Stricter("?"),
        '["\\ud800"]': Stricter('["\\uD800"]'),
        "'x'": Stricter("x"),
    },
    "BINARY": {
        '"eHg="': b"xx",
        '"eHh="': b"xx",
        '""': b"",
        '"eHg"': REFUSED,
        '"eH g="': REFUSED,
        '"e-_="': REFUSED,
        '"eHg=\\n"': Stricter(b"xx"),
        '"eHg=eHg="': Stricter(b"xxxx"),
        "1": REFUSED,
    },
    "TIMESTAMP": {
        '"2024-01-02T03:04:05Z"': NOON,
        '"2024-01-02 03:04:05.123456789"': NOON.replace(microsecond=123456),
        '"2024-01-02T03:04:05.5"': NOON.replace(microsecond=500000),
        '"2024-01-02T03:04:05.Z"': NOON,
        '"2024-01-02T03:04:05+01:30"': at(2024, 1, 2, 1, 34, 5),
        '"2024-01-02T03:04:05-0130"': at(2024, 1, 2, 4, 34, 5),
        '"2024-01-02T03:04:05+01"': at(2024, 1, 2, 2, 4, 5),
        '"2024-01-02T03:04:05+18:00"': at(2024, 1, 1, 9, 4, 5),
        '"2024-01-02T03:04:05+19:00"': REFUSED,
        '"2024-1-2 3:4:5"': NOON,
        '"2024-01-02"': at(2024, 1, 2),
        '"1969-12-31T23:59:59.9999999Z"': at(1969, 12, 31, 23, 59, 59, 999999),
        '"1582-10-10T00:00:00Z"': at(1582, 10, 10),
        '"0001-01-01T00:00:00Z"': at(1, 1, 1),
        "1700000000": at(2023, 11, 14, 22, 13, 20),
        "-1": at(1969, 12, 31, 23, 59, 59),
        "1.5": REFUSED,
        '"1700000000"': REFUSED,
        '"2024-02-30T00:00:00Z"': REFUSED,
        '"2024-01-02T24:00:00Z"': REFUSED,
        '"2024-01-02T03:04Z"': REFUSED,
        '"2024-01-02t03:04:05z"': REFUSED,
        '""': REFUSED,
        '"2024"': Stricter(at(2024, 1, 1)),
        '" 2024-01-02T03:04:05Z "': Stricter(NOON),
        '"2024-01-02T03:04:05 Europe/Rome"': Stricter(at(2024, 1, 2, 2, 4, 5)),
    },
    "TIMESTAMP_NTZ": {
        '"2024-01-02T03:04:05"': LOCAL,
        '"2024-01-02 03:04:05.123456789"': LOCAL.replace(microsecond=123456),
        '"2024-01-02"': datetime(2024, 1, 2),  # noqa: DTZ001
        '"2024-01-02T03:04:05Z"': REFUSED,
        "1700000000": REFUSED,
    },
    "DATE": {
        '"2024-01-02"': date(2024, 1, 2),
        '"2024-1-2"': date(2024, 1, 2),
        '"2024-01-02T03:04:05Z"': date(2024, 1, 2),
        '"1582-10-10"': date(1582, 10, 10),
        '"2024-02-30"': REFUSED,
        "19000": REFUSED,
        '""': REFUSED,
        '"2024"': Stricter(date(2024, 1, 1)),
        '" 2024-01-02"': Stricter(date(2024, 1, 2)),
    },
    "DECIMAL(10,2)": {
        "1": Decimal("1.00"),
        "1.5": Decimal("1.50"),
        '"1.5"': Decimal("1.50"),
        "1.005": Decimal("1.01"),
        "1.004": Decimal("1.00"),
        "-1.005": Decimal("-1.01"),
        '"1,000.5"': Decimal("1000.50"),
        '"+1"': Decimal("1.00"),
        '"1."': Decimal("1.00"),
        '".5"': Decimal("0.50"),
        '"1e3"': Decimal("1000.00"),
        "1E-500": Decimal("0.00"),
        "99999999.99": Decimal("99999999.99"),
        "99999999.995": REFUSED,
        "123456789012": REFUSED,
        '"NaN"': REFUSED,
        '" 1"': REFUSED,
        '"1_0"': REFUSED,
        '""': REFUSED,
        "true": REFUSED,
    },
    "DECIMAL(38,0)": {"9" * 38: Decimal("9" * 38), "9" * 39: REFUSED},
    "ARRAY<INT>": {
        "[1,null]": [1, None],
        "[]": [],
        "null": None,
        '[1,"x"]': REFUSED,
        "1": REFUSED,
        "{}": REFUSED,
    },
    "MAP<STRING,INT>": {
        '{"a":1,"b":null}': [("a", 1), ("b", None)],
        "{}": [],
        '{"a":1,"a":2}': Stricter([("a", 1), ("a", 2)]),
        '{"a":"x"}': REFUSED,
        "[]": REFUSED,
    },
    "STRUCT<x:INT>": {
        '{"x":1,"y":2}': {"x": 1},
        "{}": {"x": None},
        '{"X":1}': {"x": None},
        '{"x":"y"}': REFUSED,
        "[]": REFUSED,
        '"{}"': REFUSED,
        '[{"x":1}]': REFUSED,
    },
}
"""By type, then by the JSON of a field `c`: what the column has then."""
WHOLE: dict[bytes, Any] = {
    b"{}": None,
    b' {"c":1} ': 1,
    b'{"c":1,"c":2}': 2,
    b'{"c":1,"c":null}': None,
    b'{"C":5}': None,
    b'{"\\u0063":5}': 5,
    b'{"x":{"c":7},"c":1}': 1,
    b'{"c":"x","c":2}': REFUSED,
    b'{"c":2,"c":"x"}': REFUSED,
    b'{"c":1}{"c":2}': REFUSED,
    b'{"c":1}x': REFUSED,
    b'{"c":1}\0': REFUSED,
    b'{"c":1,}': REFUSED,
    b"{c:1}": REFUSED,
    b'{"c":1/*x*/}': REFUSED,
    b'{"x":01,"c":1}': REFUSED,
    b'{"x":"a\x01b","c":1}': REFUSED,
    b'{"x":"\xff","c":1}': REFUSED,
    b'\xef\xbb\xbf{"c":1}': REFUSED,
    b'[{"c":1}]': REFUSED,
    b"[]": REFUSED,
    b"null": REFUSED,
    b"7": REFUSED,
    b'""': REFUSED,
    b"": REFUSED,
    b"{'c':1}": Stricter(1),
    b'{"c":1},"x":2': Stricter(1),
    b'{"x":"\\ud800","c":1}': Stricter(1),
}
"""By a whole value: what its column `c INT` has."""


def cases() -> Iterator[tuple[str, bytes, Any]]:
    """Yields types, whole values, and what column `c` has then."""
    for kind, found in TRANSCRIPT.items():
        for text, says in found.items():
            yield kind, b'{"c":%s}' % text.encode(), says
    for value, says in WHOLE.items():
        yield "INT", value, says
