"""A source's log and its mirror's, each with its own cleaner, and the comparison of both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cleaner.kernel.log_comparison import LogComparison
from protocol.records.record_batch import Record, build_batch, read_records
from protocol.wire.numbers import Offset
from server.replication.verify.comparing import PartitionComparison, Progress
from server.replication.verify.named_keys import keys_of
from server.replication.verify.sides import Bounds, MirrorSide, Piece
from server.replication.verify.verdict import LISTED_MAX, Judged, judge
from storage.formats.log_config import LogConfig
from storage.log.log import PartitionLog
from tests.harness.compacted_log import CONFIG, CompactedLog, read_bytes
from tests.harness.log_builder import PLENTY, headers_in, run_of
from tests.harness.mirror_world import AtOnce

Change = Callable[[Record], Record | None]
"""Returns a record as the mirror gets it; None: it gets none."""


class ReadSide(MirrorSide):
    """A log that is read a few batches at a time; before each read something may happen."""

    def __init__(self, log: PartitionLog, happens: Callable[[], None]) -> None:
        thread: Any = AtOnce()
        super().__init__(log, thread, bytes_max=200)
        self._happens = happens

    async def bounds(self) -> Bounds:
        """Returns the bounds of the log."""
        self._happens()
        return await super().bounds()

    async def read(self, offset: Offset) -> Piece | None:
        """Returns what follows an offset."""
        self._happens()
        return await super().read(offset)


class RemoteSide(ReadSide):
    """The source's log: its broker does not say that it was cut."""

    def check_is_one_log(self) -> None:
        """Know nothing about it."""


class ComparedLogs:
    """A source and its mirror."""

    def __init__(self, config: LogConfig = CONFIG) -> None:
        self.source = CompactedLog(config)
        self.mirror = CompactedLog(config)
        self.progress = Progress()
        self.keys: dict[int, bytes | None] = {}
        """The keys that the last comparison has named."""

    def pass_time(self, by_ms: int) -> None:
        """Move both clocks."""
        self.source.now_ms += by_ms
        self.mirror.now_ms += by_ms

    def copy(self, change: Change | None = None) -> None:
        """Give the mirror what it lacks of the source, with plain records changed."""
        log, mirror = self.source.log, self.mirror.log
        while mirror.log_end_offset < log.high_watermark:
            data = read_bytes(log, mirror.log_end_offset)
            end = headers_in(data)[-1].next_offset if data else log.high_watermark
            data = data if change is None else changed(data, change)
            if data:
                mirror.appender.append_as_follower(run_of(data), now_ms=self.mirror.now_ms)
            if mirror.log_end_offset < end:
                mirror.appender.advance_end(Offset(end))
        self.mirror.make_durable()

    async def verify(
        self,
        *,
        by_key: bool = True,
        memory_bytes: int = 1 << 16,
        wait_seconds: float = 0.0,
        happens: Callable[[], None] = lambda: None,
    ) -> Judged:
        """Compare both, while something may happen before each read."""
        thread: Any = AtOnce()
        sides = RemoteSide(self.source.log, happens), ReadSide(self.mirror.log, happens)
        table = LogComparison(
            b"k" * 16,
            by_key=by_key,
            memory_bytes=memory_bytes,
            listed_max=LISTED_MAX,
            decompressed_bytes_max=PLENTY,
        )

        async def sleep(seconds: float) -> None:
            self.pass_time(int(1000 * seconds))

        comparison = PartitionComparison(
            *sides,
            table,
            by_key=by_key,
            thread=thread,
            wait_seconds=wait_seconds,
            monotonic=lambda: self.source.now_ms / 1000,
            sleep=sleep,
        )
        self.progress = comparison.progress
        await comparison.run()
        found = self.progress.found
        self.keys = await keys_of(found.listed, sides, thread=thread, decompressed_bytes_max=PLENTY)
        return judge(
            found,
            by_key=by_key,
            slowest_part_ms=self.progress.slowest_part_ms,
            delete_retention_ms=self.source.log.config.delete_retention_ms,
        )


def changed(data: bytes, change: Change) -> bytes:
    """Returns batches with the plain records changed; those of transactions and markers stay."""
    batches: list[bytes] = []
    position = 0
    for header in headers_in(data):
        batch = data[position : position + header.size_bytes]
        position += header.size_bytes
        if not header.is_transactional and not header.is_control:
            records = read_records(batch, decompressed_bytes_max=PLENTY)
            kept = [new for old in records if (new := change(old)) is not None]
            batch = b"" if not kept else _batch(kept, header.base_offset, header)
        batches.append(batch)
    return b"".join(batches)


def _batch(records: Sequence[Record], base_offset: int, header: Any) -> bytes:
    return bytes(
        build_batch(
            records, base_offset=base_offset, leader_epoch=header.leader_epoch, codec=header.codec
        )
    )
