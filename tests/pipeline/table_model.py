"""What a table must hold, told from all records; and micro-batches as the source would give them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from pipeline.offsets.cut import Cut, Offsets, TableRefused
from pipeline.tables.payload_options import OnMissingKey, Payload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.tables.formats.table import Table

Record: TypeAlias = tuple[str, int, int, datetime, bytes | None, bytes | None]
"""Topic, partition, offset, timestamp, key, value."""
Content: TypeAlias = dict[tuple[str, int, bytes], tuple[int, bytes]]
"""(Topic, partition, key) -> (offset, value)."""
WHEN = datetime(2026, 1, 1, tzinfo=UTC)
NOTHING = Cut({}, {})


def record(partition: int, offset: int, key: bytes | None, value: bytes | None) -> Record:
    return "orders", partition, offset, WHEN, key, value


def frame(session: SparkSession, records: Sequence[Record]) -> DataFrame:
    from pipeline.tables.latest import SCHEMA

    return session.createDataFrame(list(records), SCHEMA)


def take(session: SparkSession, table: Table, *records: Record) -> None:
    """Bring records into a table as a micro-batch of a stream that began at the first offset."""
    from pipeline.tables.job import bring_in

    payload = Payload(on_missing_key=OnMissingKey.SKIP)
    bring_in(frame(session, records), table, payload, NOTHING)


def content(table: Table) -> Content:
    rows = table.read().collect()
    found = {
        (r["_topic"], r["_partition"], bytes(r["key"])): (r["_offset"], bytes(r["value"]))
        for r in rows
    }
    assert len(found) == len(rows), "a key has two rows"
    return found


def model(records: Sequence[Record]) -> Content:
    """The last values, tombstones applied."""
    last: dict[tuple[str, int, bytes], tuple[int, bytes | None]] = {}
    for topic, partition, offset, _, key, value in sorted(records, key=lambda r: r[:3]):
        if key is not None:
            last[topic, partition, key] = (offset, value)
    return {key: (offset, value) for key, (offset, value) in last.items() if value is not None}


def below(records: Sequence[Record], offsets: Offsets) -> list[Record]:
    """The records that a table with these offsets has taken into account."""
    return [r for r in records if r[2] < offsets.get(r[0], {}).get(r[1], 0)]


def refute_harm_of_two_streams(
    session: SparkSession, opened: Callable[[SparkSession], Table], *, batches: int
) -> None:
    """Let two streams merge the same records at once, and check that some of their micro-batches were
    refused, that each refusal says why, and that the table is right."""
    records = [record(0, at, b"%d" % (at % 3), b"%d" % at) for at in range(batches)]
    take(session, opened(session), records[0])

    def follow(number: int) -> list[str]:
        """A stream of a session of its own; why its batches were refused."""
        own = session.newSession()
        refused = []
        for at in range(1 + number, batches):
            try:
                take(own, opened(own), *records[: at + 1])
            except TableRefused as conflict:
                refused.append(str(conflict))
        return refused

    with ThreadPoolExecutor(2) as pool:
        refused = [said for each in pool.map(follow, range(2)) for said in each]

    table = opened(session)
    held = table.held()
    assert held is not None
    assert content(table) == model(below(records, held.offsets))
    assert refused
    assert all("another program wrote" in said for said in refused)
