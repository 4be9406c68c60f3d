"""Bytes, JSON and Avro as columns, and values that cannot be parsed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pipeline.offsets.cut import TableRefused
from pipeline.spark.job import cause
from pipeline.tables.payload_options import KeyFormat, OnUnparsable, Payload, ValueFormat
from tests.pipeline.table_model import WHEN, frame, record

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"]},
        ],
    }
)
ORDER = b"\x0e\x02\x04hi"
"""Avro: id 7, note `hi`."""
ALL_NULL = json.dumps(
    {"type": "record", "name": "N", "fields": [{"name": "a", "type": ["null", "long"]}]}
)


def rows(session: SparkSession, payload: Payload, *values: bytes | None) -> list[Row]:
    """One record for each value, with the offsets 0, 1, ..."""
    from pipeline.tables.payload import rows_of

    records = [record(0, offset, b"k%d" % offset, value) for offset, value in enumerate(values)]
    return list(rows_of(frame(session, records), payload, None).orderBy("_offset").collect())


def test_bytes_are_the_default_and_say_where_they_come_from(session: SparkSession) -> None:
    first, second = rows(session, Payload(), b"v", None)

    assert first.asDict() == {
        "key": b"k0",
        "value": b"v",
        "_topic": "orders",
        "_partition": 0,
        "_offset": 0,
        "_timestamp": WHEN.replace(tzinfo=None),
        "_tombstone": False,
    }
    assert second["_tombstone"]


def test_json_becomes_columns_with_the_schema_that_is_given_or_inferred(
    session: SparkSession,
) -> None:
    given = Payload(
        value_format=ValueFormat.JSON,
        value_schema="id INT, `a b` STRING",
        key_format=KeyFormat.STRING,
        key_column="name",
    )
    inferred = Payload(value_format=ValueFormat.JSON)

    (row,) = rows(session, given, b'{"id": 7, "a b": "x", "more": 1}')
    assert (row["name"], row["id"], row["a b"]) == ("k0", 7, "x")
    one, two, dead = rows(session, inferred, b'{"id": 7}', b'{"other": [1.5]}', None)
    assert (one["id"], two["other"], dead["_tombstone"]) == (7, [1.5], True)


def test_avro_becomes_columns_with_confluents_header_or_without(session: SparkSession) -> None:
    plain = Payload(value_format=ValueFormat.AVRO, value_schema=AVRO)
    with_header = Payload(value_format=ValueFormat.AVRO, value_schema=AVRO, confluent_header=True)

    (row,) = rows(session, plain, ORDER)
    assert (row["id"], row["note"]) == (7, "hi")
    (row,) = rows(session, with_header, b"\0\0\0\0\x2a" + ORDER)
    assert (row["id"], row["note"]) == (7, "hi")


def test_an_avro_record_of_nulls_is_not_taken_for_one_that_cannot_be_read(
    session: SparkSession,
) -> None:
    payload = Payload(
        value_format=ValueFormat.AVRO, value_schema=ALL_NULL, on_unparsable=OnUnparsable.KEEP
    )

    nulls, broken = rows(session, payload, b"\x00", b"\x09")

    assert (nulls["a"], nulls["_unparsed"]) == (None, None)
    assert (broken["a"], broken["_unparsed"]) == (None, b"\x09")


NO_ORDERS = [b"no JSON", b'{"id": "text"}', b"null", b"", b"[1]", b'{"id": 1, "name": "\xff"}']


def test_json_that_does_not_fit_is_kept_as_bytes(session: SparkSession) -> None:
    payload = Payload(
        value_format=ValueFormat.JSON,
        value_schema="id INT, name STRING",
        on_unparsable=OnUnparsable.KEEP,
    )

    good, *bad = rows(session, payload, b'{"id": 1}', *NO_ORDERS)

    assert (good["id"], good["_unparsed"]) == (1, None)
    assert [(row["id"], row["name"], row["_unparsed"]) for row in bad] == [
        (None, None, value) for value in NO_ORDERS
    ]


def test_json_that_does_not_fit_ends_the_job_with_its_offset(session: SparkSession) -> None:
    payload = Payload(value_format=ValueFormat.JSON, value_schema="id INT")

    with pytest.raises(Exception, match="orders-0, offset 1") as failure:
        rows(session, payload, b'{"id": 1}', b"no JSON")
    assert cause(failure.value) == "orders-0, offset 1: the value is not json of this schema"


def test_a_key_that_is_no_text_ends_the_job_where_text_was_asked_for(session: SparkSession) -> None:
    from pipeline.tables.payload import rows_of

    payload = Payload(key_format=KeyFormat.STRING)
    with pytest.raises(Exception, match="orders-0, offset 5: the key is no text"):
        rows_of(frame(session, [record(0, 5, b"\xff", b"v")]), payload, None).collect()


@pytest.mark.parametrize(
    ("payload", "sentence"),
    [
        (Payload(value_format=ValueFormat.JSON, value_schema="id INTT"), "cannot be read"),
        (Payload(value_format=ValueFormat.JSON, value_schema="key INT"), "--key-column"),
        (Payload(value_format=ValueFormat.JSON), "no value is a JSON object"),
        (Payload(value_format=ValueFormat.AVRO, value_schema="{"), "no Avro schema"),
        (Payload(value_format=ValueFormat.AVRO, value_schema='"nonsense"'), "--value-schema"),
    ],
)
def test_a_schema_that_cannot_be_used_is_one_sentence(
    session: SparkSession, payload: Payload, sentence: str
) -> None:
    with pytest.raises(TableRefused, match=sentence) as refused:
        rows(session, payload, b"text")
    assert "\n" not in str(refused.value)


def test_avro_needs_a_schema() -> None:
    with pytest.raises(TableRefused, match="need --value-schema"):
        Payload(value_format=ValueFormat.AVRO)
