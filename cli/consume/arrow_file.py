"""Writes the last value of each key as an Arrow file, for `kompakt consume --latest --arrow FILE`.

    partition  int32                    key      binary
    offset     int64                    value    binary
    timestamp  timestamp[ms, UTC]       headers  list<struct<name: string, value: binary>>

The format is Arrow's IPC file format (Feather 2), without compression. The schema's metadata has the
topic (`kompakt.topic`) and how its records are ranked (`kompakt.strategy`). Rows are written in batches,
so memory is bounded however many there are. The file gets its name when it is complete and synced: so a
reader finds the last complete one, and an interrupted export leaves that as it was.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from cli.base.command_end import EXIT_FAILED, CommandFailed
from cli.consume.latest_records import LatestRecord

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS_MAX = 10_000
BATCH_BYTES_MAX = 16 << 20
NO_TIMESTAMP = -1
REQUIREMENT = "pyarrow>=17"
"""As the extra `arrow` says."""


def check_arrow() -> None:
    """Raise CommandFailed, which says what to install, if pyarrow is missing."""
    if find_spec("pyarrow") is None:
        wanted = shlex.join([sys.executable, "-m", "pip", "install", REQUIREMENT])
        raise CommandFailed(EXIT_FAILED, f"--arrow needs pyarrow: install it with `{wanted}`")


def write_arrow(path: Path, records: Iterable[LatestRecord], *, topic: str, strategy: str) -> None:
    """Write records to a file, which replaces one of this name.

    Raises:
        CommandFailed: the file cannot be written; one that was there is unchanged.
    """
    import pyarrow as pa

    unfinished = path.with_name(path.name + ".part")
    schema = _schema({"kompakt.topic": topic, "kompakt.strategy": strategy})
    try:
        with unfinished.open("wb") as file:
            with pa.ipc.new_file(file, schema) as writer:
                for batch in batched(records):
                    writer.write_batch(_record_batch(batch, schema))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError):
            why = f"cannot write {path}: {error.strerror or error}"
            raise CommandFailed(EXIT_FAILED, why) from error
        raise


def batched(
    records: Iterable[LatestRecord],
    *,
    rows_max: int = BATCH_ROWS_MAX,
    bytes_max: int = BATCH_BYTES_MAX,
) -> Iterator[list[LatestRecord]]:
    """Yield records in lists of at most so many rows; a list ends with the record that fills it."""
    rows, size = list[LatestRecord](), 0
    for record in records:
        rows.append(record)
        size += len(record.key) + len(record.value)
        if len(rows) >= rows_max or size >= bytes_max:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _schema(metadata: dict[str, str]) -> pa.Schema:
    import pyarrow as pa

    header = pa.struct([("name", pa.string()), ("value", pa.binary())])
    columns = [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(header)),
    ]
    return pa.schema(columns, metadata=metadata)


def _record_batch(rows: Sequence[LatestRecord], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    columns = {
        "partition": [row.partition for row in rows],
        "offset": [row.offset for row in rows],
        "timestamp": [None if row.timestamp == NO_TIMESTAMP else row.timestamp for row in rows],
        "key": [row.key for row in rows],
        "value": [row.value for row in rows],
        "headers": [
            [{"name": name, "value": value} for name, value in row.headers] for row in rows
        ],
    }
    return pa.RecordBatch.from_pydict(columns, schema=schema)
