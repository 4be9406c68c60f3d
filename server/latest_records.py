"""The last value of each key, in bounded memory: a table that grows onto the disk.

A topic may have more keys than memory. The rows are in an SQLite database without a name: in memory up
to a bound, beyond it in a file that the system removes with the process. Records are gathered first, so
that a key that changes often costs one write a batch. A tombstone removes its key.

A key belongs to its partition, as for the cleaner: the same key in two partitions is two rows.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Self

from server.command_end import EXIT_FAILED, CommandFailed
from server.record_text import ReadRecord

GATHERED_RECORDS_MAX = 20_000
GATHERED_BYTES_MAX = 16 << 20
RECORD_OVERHEAD = 100

SET_UP = """
    PRAGMA page_size = 8192;
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    CREATE TABLE latest (
        partition INT, key BLOB, offset INT, timestamp INT, value BLOB, headers TEXT,
        PRIMARY KEY (partition, key)
    );
"""
PUT = """
    INSERT INTO latest VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (partition, key) DO UPDATE SET
        offset = excluded.offset, timestamp = excluded.timestamp, value = excluded.value,
        headers = excluded.headers
"""
REMOVE = "DELETE FROM latest WHERE partition = ? AND key = ?"
ALL = "SELECT * FROM latest ORDER BY partition, key"
"""By key: that is the order of the index, so nothing is sorted."""


@dataclass(frozen=True, slots=True)
class LatestRecord:
    """The last record of a key; it is no tombstone."""

    partition: int
    key: bytes
    offset: int
    timestamp: int
    value: bytes
    headers: tuple[tuple[str, bytes | None], ...]


class LatestRecords:
    """The table. Close it, or use it in a `with`.

    Args:
        memory_bytes: how much of it is kept in memory, beside about 16 MiB of gathered records.
    """

    def __init__(
        self, *, memory_bytes: int, gathered_records_max: int = GATHERED_RECORDS_MAX
    ) -> None:
        self.records_count = 0
        """Records that were added."""
        self.keyless_count = 0
        """Those without a key, which have no last value."""
        self._gathered_records_max = gathered_records_max
        self._gathered: dict[tuple[int, bytes], ReadRecord] = {}
        self._gathered_bytes = 0
        self._table = sqlite3.connect("", isolation_level=None)
        self._table.executescript(f"PRAGMA cache_size = -{memory_bytes >> 10};" + SET_UP)

    def add(self, records: Iterable[ReadRecord]) -> None:
        """Take records, in the order of their offsets. Raises CommandFailed: the disk is full."""
        for record in records:
            self.records_count += 1
            if record.key is None:
                self.keyless_count += 1
                continue
            self._gathered[record.partition, record.key] = record
            self._gathered_bytes += len(record.key) + len(record.value or b"") + RECORD_OVERHEAD
            if (
                len(self._gathered) >= self._gathered_records_max
                or self._gathered_bytes >= GATHERED_BYTES_MAX
            ):
                self._put_gathered()

    def __len__(self) -> int:
        """How many keys have a value."""
        self._put_gathered()
        count: int = self._table.execute("SELECT count(*) FROM latest").fetchone()[0]
        return count

    def __iter__(self) -> Iterator[LatestRecord]:
        """Each key's last record, partition by partition, by key."""
        self._put_gathered()
        with closing(self._table.execute(ALL)) as rows:
            for partition, key, offset, timestamp, value, headers in rows:
                yield LatestRecord(partition, key, offset, timestamp, value, _read_headers(headers))

    def key_bytes_max(self) -> int:
        """Bytes of the longest key."""
        self._put_gathered()
        width: int | None = self._table.execute("SELECT max(length(key)) FROM latest").fetchone()[0]
        return width or 0

    def _put_gathered(self) -> None:
        gathered, self._gathered, self._gathered_bytes = self._gathered.values(), {}, 0
        try:
            self._table.execute("BEGIN")
            self._table.executemany(PUT, map(_row, (r for r in gathered if r.value is not None)))
            removed = ((r.partition, r.key) for r in gathered if r.value is None)
            self._table.executemany(REMOVE, removed)
            self._table.execute("COMMIT")
        except sqlite3.Error as error:
            raise CommandFailed(
                EXIT_FAILED,
                f"the table of last values cannot be kept ({error}): it is larger than --memory and"
                " goes to the disk of TMPDIR",
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._table.close()


def _row(record: ReadRecord) -> tuple[object, ...]:
    headers = _written_headers(record.headers) if record.headers else None
    return record.partition, record.key, record.offset, record.timestamp, record.value, headers


def _written_headers(headers: Sequence[tuple[str, bytes | None]]) -> str:
    return json.dumps(
        [(name, None if value is None else value.decode("latin-1")) for name, value in headers]
    )


def _read_headers(text: str | None) -> tuple[tuple[str, bytes | None], ...]:
    return tuple(
        (name, None if value is None else value.encode("latin-1"))
        for name, value in json.loads(text or "[]")
    )
