"""The records in the broker's answers about keys."""

from __future__ import annotations

from typing import Any

from cli.get.found_records import FoundRecord, records_of

TEXT: dict[str, Any] = {
    "topic": "users",
    "partition": 3,
    "offset": 4711,
    "timestamp_ms": 1_767_225_600_000,
    "key": "ada",
    "key_encoding": "utf-8",
    "value": '{"city": "Zürich"}',
    "value_encoding": "utf-8",
    "headers": [
        {"key": "trace", "value": "7", "encoding": "utf-8"},
        {"key": "bytes", "value": "AP8=", "encoding": "base64"},
        {"key": "null", "value": None, "encoding": "utf-8"},
    ],
}
BYTES = TEXT | {"key": "/w==", "key_encoding": "base64", "value": "AP8=", "headers": []}
BYTES["value_encoding"] = "base64"


def test_text_and_bytes_are_the_bytes_of_the_record() -> None:
    assert records_of(TEXT) == [
        FoundRecord(
            partition=3,
            offset=4711,
            timestamp=1_767_225_600_000,
            key=b"ada",
            value='{"city": "Zürich"}'.encode(),
            undecoded="",
            headers=(("trace", b"7"), ("bytes", b"\x00\xff"), ("null", None)),
        )
    ]
    (record,) = records_of(BYTES)
    assert (record.key, record.value, record.headers) == (b"\xff", b"\x00\xff", ())


def test_a_decoded_value_is_json_and_an_undecoded_one_says_why() -> None:
    decoded = TEXT | {"value": {"city": "Zürich", "n": [1, None]}, "value_encoding": "json"}
    (record,) = records_of(decoded)
    assert (record.value.decode(), record.undecoded) == ('{"city": "Zürich", "n": [1, null]}', "")

    (record,) = records_of(
        BYTES | {"undecoded": {"error": "no schema 7", "code": "unknown_schema"}}
    )
    assert (record.value, record.undecoded) == (b"\x00\xff", "no schema 7")


def test_an_ambiguous_answer_has_several_records_and_a_miss_has_none() -> None:
    several = {"topic": "users", "key": "ada", "ambiguous": True, "records": [TEXT, BYTES]}

    assert [record.key for record in records_of(several)] == [b"ada", b"\xff"]
    assert records_of({"key": "ada", "error": "ada is not in the log", "code": "not_found"}) == []
