"""The schema of each writer is asked for once, by however many threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline.export.columns.writers import Unread, Writers
from pipeline.tables.payload_options import Encoding, PayloadFormat
from pipeline.tables.writer_schemas import NoWriterSchema
from tests.harness.fake_registry import with_header

ENCODING = Encoding(
    part="value",
    format=PayloadFormat.AVRO,
    schema='"long"',
    message=None,
    schema_ids=(1, 2),
    registry=None,
)


def test_a_schema_is_prepared_once_for_all_threads() -> None:
    begun = list[str]()
    both_wait = threading.Barrier(2)

    def prepare(text: str) -> str:
        begun.append(text)
        return text

    writers = Writers(ENCODING, prepare)

    def of(schema_id: int) -> str:
        both_wait.wait()
        return writers.of(with_header(schema_id, b"\2"))

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(of, (1, 1))) == ['"long"', '"long"']
        assert list(threads.map(of, (1, 2))) == ['"long"', '"long"']
    assert len(begun) == 2


def test_a_schema_that_cannot_be_used_is_refused_each_time() -> None:
    prepared = list[str]()

    def prepare(text: str) -> str:
        prepared.append(text)
        raise NoWriterSchema("it is broken")

    writers = Writers(ENCODING, prepare)
    for _ in range(2):
        with pytest.raises(Unread, match="the value has the schema with id 1: it is broken"):
            writers.of(with_header(1, b"\2"))
    assert len(prepared) == 1


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0\1", b"\1\0\0\0\1\2"])
def test_what_has_no_header_names_no_schema(data: bytes) -> None:
    with pytest.raises(Unread, match="the value does not name a schema"):
        Writers(ENCODING, str).of(data)
