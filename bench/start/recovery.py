"""The duration of a start after a crash, compared with reading and checksumming the same bytes.

A log is written in the state that a killed broker leaves: everything synced, no checkpoint, no clean
stop. Before each start that state is restored; its bytes stay in the page cache. The duration of an
empty start is measured each time as well, and subtracted.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

from bench.base.batches import keyed_batch
from bench.base.figure import Figure, interleaved
from bench.base.processes import REPOSITORY, broker_command, free_port
from bench.start.data_directory import UnsyncedFileSystem, now_ms
from bench.start.startup import milliseconds_to_listen
from protocol.records.batch_header import PRODUCER_ID_AT, seal
from replog.trigger import CompactionSettings
from server.durability.directories import abandon
from server.runtime.executors import Executor
from server.topics.stores import open_stores
from server.topics.topic import Topic, TopicDefaults
from server.topics.topics import Topics
from storage.batches.validate import Refused, validate_batch
from storage.files.paths import LOG, topic_id_text
from storage.formats.log_config import LogConfig
from storage.formats.meta_properties import MetaProperties
from storage.log.directory import LogDirectory
from storage.log.log import PartitionLog

LOG_BYTES = 768 << 20
PRODUCER = struct.Struct(">qhi")
"""Layout of producer id, epoch and base sequence in a batch's header."""

READER = """
import os, sys, time
from protocol.records.batch_scan import crc32c

buffer, summed, position = memoryview(bytearray(1 << 20)), 0, 0
descriptor = os.open(sys.argv[1], os.O_RDONLY)
started = time.perf_counter()
while count := os.preadv(descriptor, [buffer], position):
    summed, position = crc32c(buffer[:count], summed), position + count
print(1e3 * (time.perf_counter() - started))
"""


def unclean_start_figures(pairs: int) -> list[Figure]:
    """Measure starts that must scan one log of large and one of small batches."""
    return [
        unclean_start(pairs, "64 KiB batches", records=512, value_bytes=100, is_idempotent=False),
        unclean_start(
            pairs, "1 KB batches, idempotent", records=1, value_bytes=910, is_idempotent=True
        ),
    ]


def unclean_start(
    pairs: int, name: str, *, records: int, value_bytes: int, is_idempotent: bool
) -> Figure:
    batch = keyed_batch(records=records, value_bytes=value_bytes, keys=10_000, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        killed, data, empty = (Path(folder) / each for each in ("killed", "data", "empty"))
        asyncio.run(write_killed(killed, batch, is_idempotent=is_idempotent))
        (segment,) = killed.glob(f"*/0/*{LOG}")
        port = free_port()

        def milliseconds_to_recover() -> float:
            put_back(killed, data)
            recovering = milliseconds_to_listen(broker_command(port, data), port)
            return recovering - milliseconds_to_listen(broker_command(port, empty), port)

        milliseconds_to_recover()
        return interleaved(
            f"start after a crash, {name}, the empty start taken off",
            "ms",
            milliseconds_to_recover,
            lambda: milliseconds_to_read(segment),
            limit_is="reading and checksumming the bytes",
            pairs=pairs,
            note=f"one log of {LOG_BYTES >> 20} MiB behind its recovery point, in the page cache",
        )


def milliseconds_to_read(path: Path) -> float:
    command = [sys.executable, "-c", READER, str(path)]
    return float(subprocess.check_output(command, cwd=REPOSITORY))


def put_back(killed: Path, data: Path) -> None:
    """Restore `data` to its state when the broker was killed, with hard links to the segments."""
    shutil.rmtree(data, ignore_errors=True)
    shutil.copytree(killed, data, copy_function=_link_segments)


def _link_segments(source: str, target: str) -> None:
    if source.endswith(LOG):
        os.link(source, target)
    else:
        shutil.copyfile(source, target)


async def write_killed(path: Path, batch: bytes, *, is_idempotent: bool) -> None:
    """Make a data directory with one log of LOG_BYTES, and leave it without a clean stop."""
    files = UnsyncedFileSystem()
    meta = MetaProperties(
        cluster_id=topic_id_text(uuid.uuid4()), node_id=1, directory_id=topic_id_text(uuid.uuid4())
    )
    directory = LogDirectory(
        files,
        str(path),
        meta,
        background=lambda work: work(),
        now_ms=now_ms,
        random_bytes=os.urandom,
    )
    stores = await open_stores(files, directory.path, CompactionSettings())
    defaults = TopicDefaults(config=LogConfig(), partitions_count=1, partitions_max=1)
    administration = Executor("administration", threads=1)
    topic = await Topics(
        stores.cluster,
        stores.node,
        [directory],
        files=files,
        defaults=defaults,
        administration=administration,
        removals=administration,
    ).create("crashed")
    assert isinstance(topic, Topic), topic
    (log,) = topic.logs()
    for number in range(LOG_BYTES // len(batch)):
        _append(log, batch, number if is_idempotent else None)
    log.sync()
    administration.close()
    await stores.close()
    abandon(directory, "killed")
    os.sync()


def _append(log: PartitionLog, batch: bytes, sequence: int | None) -> None:
    own = bytearray(batch)
    if sequence is not None:
        PRODUCER.pack_into(own, PRODUCER_ID_AT, 7, 0, sequence)
        seal(own)
    valid = validate_batch(memoryview(own), log.validation_rules(now_ms=now_ms()))
    assert not isinstance(valid, Refused), valid.message
    log.appender.append_as_leader(valid, now_ms=now_ms())
