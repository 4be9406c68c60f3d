"""Keeps the last value of each key in bounded memory: a table that spills to disk.

The keys of a topic may not fit in memory. The rows are in an unnamed SQLite database, which stays in
memory up to a bound and beyond that uses a temporary file, which the system deletes when the process
ends. Records are gathered in batches first, so that a key that changes often costs one write per batch.
A tombstone removes its key. Where records have versions (`compaction.strategy`), a record with a lower
version may follow it, so the tombstone's row stays, without a value.

A key belongs to its partition, as for the cleaner: the same key in two partitions is two rows.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Self

from cleaner.rules.latest import Rank, version_of, wins
from cli.base.command_end import EXIT_FAILED, CommandFailed
from cli.base.record_text import ReadRecord
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy

GATHERED_RECORDS_MAX = 20_000
GATHERED_BYTES_MAX = 16 << 20
RECORD_OVERHEAD = 100

SET_UP = """
    PRAGMA page_size = 8192;
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    CREATE TABLE latest (
        partition INT, key BLOB, version INT, offset INT, timestamp INT, value BLOB, headers TEXT,
        PRIMARY KEY (partition, key)
    );
"""
PUT = """
    INSERT INTO latest VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (partition, key) DO UPDATE SET
        version = excluded.version, offset = excluded.offset, timestamp = excluded.timestamp,
        value = excluded.value, headers = excluded.headers
    WHERE (excluded.version, excluded.offset) > (version, offset)
"""
"""The comparison is `cleaner.rules.latest.wins`."""
REMOVE = "DELETE FROM latest WHERE partition = ? AND key = ?"
ALL = """
    SELECT partition, key, offset, timestamp, value, headers FROM latest
    WHERE value IS NOT NULL ORDER BY partition, key
"""
"""This is the order of the index, so SQLite does not sort."""
COUNT = "SELECT count(*) FROM latest WHERE value IS NOT NULL"
LONGEST_KEY = "SELECT max(length(key)) FROM latest WHERE value IS NOT NULL"


@dataclass(frozen=True, slots=True)
class LatestRecord:
    """The last record of a key, which is not a tombstone."""

    partition: int
    key: bytes
    offset: int
    timestamp: int
    value: bytes
    headers: tuple[tuple[str, bytes | None], ...]


class LatestRecords:
    """A table of the last record of each key. Use it in a `with` statement.

    Args:
        memory_bytes: the memory for rows, besides about 16 MiB of gathered records.
        strategy: which record of a key is its last one.
    """

    def __init__(
        self,
        *,
        memory_bytes: int,
        strategy: CompactionStrategy = BY_OFFSET,
        gathered_records_max: int = GATHERED_RECORDS_MAX,
    ) -> None:
        self.records_count = 0
        """The number of records added."""
        self.keyless_count = 0
        """The number of those without a key, which are skipped."""
        self._strategy = strategy
        self._gathered_records_max = gathered_records_max
        self._gathered: dict[tuple[int, bytes], tuple[Rank, ReadRecord]] = {}
        self._gathered_bytes = 0
        self._table = sqlite3.connect("", isolation_level=None)
        self._table.executescript(f"PRAGMA cache_size = -{memory_bytes >> 10};" + SET_UP)

    def add(self, records: Iterable[ReadRecord]) -> None:
        """Add records in offset order. Raises CommandFailed if the disk is full."""
        for record in records:
            self.records_count += 1
            if record.key is None:
                self.keyless_count += 1
                continue
            name, rank = (record.partition, record.key), self._rank(record)
            known = self._gathered.get(name)
            if known is None or wins(rank, over=known[0]):
                self._gathered[name] = rank, record
            self._gathered_bytes += len(record.key) + len(record.value or b"") + RECORD_OVERHEAD
            if (
                len(self._gathered) >= self._gathered_records_max
                or self._gathered_bytes >= GATHERED_BYTES_MAX
            ):
                self._put_gathered()

    def _rank(self, record: ReadRecord) -> Rank:
        version = version_of(
            self._strategy, timestamp=record.timestamp, headers=tuple(record.headers)
        )
        return Rank(version, record.offset)

    def __len__(self) -> int:
        """Returns the number of keys that have a value."""
        self._put_gathered()
        count: int = self._table.execute(COUNT).fetchone()[0]
        return count

    def __iter__(self) -> Iterator[LatestRecord]:
        """Yield the last record of each key, ordered by partition and key."""
        self._put_gathered()
        with closing(self._table.execute(ALL)) as rows:
            for partition, key, offset, timestamp, value, headers in rows:
                yield LatestRecord(partition, key, offset, timestamp, value, _read_headers(headers))

    def key_bytes_max(self) -> int:
        """Returns the length of the longest key in bytes, 0 if there are no keys."""
        self._put_gathered()
        width: int | None = self._table.execute(LONGEST_KEY).fetchone()[0]
        return width or 0

    def _put_gathered(self) -> None:
        gathered, self._gathered, self._gathered_bytes = self._gathered.values(), {}, 0
        stays = self._strategy.has_versions
        rows = (_row(rank, r) for rank, r in gathered if stays or r.value is not None)
        removed = ((r.partition, r.key) for _, r in gathered if not stays and r.value is None)
        try:
            self._table.execute("BEGIN")
            self._table.executemany(PUT, rows)
            self._table.executemany(REMOVE, removed)
            self._table.execute("COMMIT")
        except sqlite3.Error as error:
            raise CommandFailed(
                EXIT_FAILED,
                f"cannot store the table of last values ({error}): it is larger than --memory, so it"
                " spills to the disk of TMPDIR",
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._table.close()


def _row(rank: Rank, record: ReadRecord) -> tuple[object, ...]:
    headers = _write_headers(record.headers) if record.headers else None
    return record.partition, record.key, *rank, record.timestamp, record.value, headers


def _write_headers(headers: Sequence[tuple[str, bytes | None]]) -> str:
    return json.dumps(
        [(name, None if value is None else value.decode("latin-1")) for name, value in headers]
    )


def _read_headers(text: str | None) -> tuple[tuple[str, bytes | None], ...]:
    return tuple(
        (name, None if value is None else value.encode("latin-1"))
        for name, value in json.loads(text or "[]")
    )
