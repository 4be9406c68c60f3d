"""Compares one mirrored partition with its source. It needs no digest of either side, and no hold.

Last values (a topic that is compacted on either side):

    1  E = the source's last stable offset; read the source up to E
    2  F = the source's last stable offset now; read on up to F. Repeat while F moves much: E becomes F
    3  wait until the mirror has F
    4  read the mirror up to E, then on up to its own last stable offset
    5  compare the keys whose newest record is below E on both sides

A cleaner may run on both sides all the time. It removes a record below E only because of a later one of
its key, which it can see: so that is below the last stable offset once E is reached, and step 2 or 4
reads it. If it is below E, it counts instead. If it is not, the key was written again, and does not
count. `verdict.py` says when this may fail for tombstones.

All records (a topic that is not compacted): the same range of offsets of both sides, as much at once as
fits into the table.

What grows with the log runs in the thread `verification`, in pieces of `replica.fetch.max.bytes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from cleaner.kernel.log_comparison import LogComparison
from cleaner.rules.log_comparison import Comparison
from protocol.wire.errors import ProtocolError
from protocol.wire.numbers import Offset
from server.replication.verify.sides import Bounds, CannotRead, Side
from server.replication.verify.verdict import NOTHING, together
from server.runtime.executors import Executor
from storage.files.files import Buffer

SOURCE, MIRROR = 0, 1
CATCH_UPS_MAX = 5
"""How often the end is moved to where the source is by then, so that few keys are left out."""
POLL_SECONDS = 0.1


class MirrorIsBehind(Exception):
    """The mirror did not get what it was waited for, in one sentence."""


@dataclass(slots=True)
class Progress:
    """How far a comparison is, for people."""

    phase: str = "waiting"
    read_bytes: list[int] = field(default_factory=lambda: [0, 0])
    """Of the source, and of the mirror."""
    parts: int = 0
    """How often both sides were read: more than once if the keys do not fit into the table."""
    start_offset: int = -1
    end_offset: int = -1
    slowest_part_ms: int = 0
    found: Comparison = NOTHING


class PartitionComparison:
    """One comparison. `run` it once; `progress` may be read meanwhile."""

    def __init__(
        self,
        source: Side,
        mirror: Side,
        table: LogComparison,
        *,
        by_key: bool,
        thread: Executor,
        wait_seconds: float,
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """
        Args:
            table: as `by_key` says.
            thread: feeds the table.
            wait_seconds: how long the mirror may take to get what the source has.
        """
        # Constant after construction
        self._sides = (source, mirror)
        self._table = table
        self._by_key = by_key
        self._thread = thread
        self._wait_seconds = wait_seconds
        self._monotonic = monotonic
        self._sleep = sleep
        # State
        self.progress = Progress()
        self._starts = [Offset(0), Offset(0)]
        """The log starts, as the sides last said them."""

    async def run(self) -> None:
        """Compare both sides; `progress.found` has the result.

        Raises:
            MirrorIsBehind: the mirror did not get what the source has in time.
            CannotRead, ClientFailed, StorageError: a side cannot be read.
        """
        try:
            await (self._compare_keys() if self._by_key else self._compare_records())
        except (ProtocolError, OverflowError) as error:
            raise CannotRead(str(error)) from error
        self.progress.phase = "done"

    # ---------------------------------------------------------------- last values

    async def _compare_keys(self) -> None:
        first_hash, has_more = 0, True
        while has_more:
            began = self._monotonic()
            await self._thread.run(self._table.begin, first_hash)
            self.progress.parts += 1
            end, beyond = await self._read_source()
            await self._wait_for_mirror(beyond)
            after = await self._read(MIRROR, (await self._bounds(MIRROR)).start, end)
            await self._read(MIRROR, after, (await self._bounds(MIRROR)).end)
            # A side without records has no piece that says where it starts.
            await self._bounds(SOURCE)
            took_ms = int(1000 * (self._monotonic() - began))
            self.progress.slowest_part_ms = max(self.progress.slowest_part_ms, took_ms)
            await self._conclude(max(self._starts), end)
            has_more = not self._table.has_all_keys
            if has_more:
                first_hash = self._table.last_hash + 1

    async def _read_source(self) -> tuple[Offset, Offset]:
        """Returns the end up to which keys are compared, and the end up to which was read."""
        bounds = await self._bounds(SOURCE)
        end, beyond = bounds.end, bounds.end
        at = await self._read(SOURCE, bounds.start, end)
        for _ in range(CATCH_UPS_MAX):
            end, beyond = beyond, (await self._bounds(SOURCE)).end
            if beyond <= end:
                return end, end
            at = await self._read(SOURCE, at, beyond)
        return end, beyond

    # ---------------------------------------------------------------- all records

    async def _compare_records(self) -> None:
        bounds = [await side.bounds() for side in self._sides]
        at, end = max(each.start for each in bounds), bounds[SOURCE].end
        await self._wait_for_mirror(end)
        while at < end:
            await self._thread.run(self._table.begin)
            self.progress.parts += 1
            await self._read(SOURCE, at, end)
            await self._read(MIRROR, at, end)
            part_end = min(end, Offset(self._table.limit_offset))
            assert part_end > at, "the table has room for records of both sides"
            await self._conclude(max(at, *self._starts), part_end)
            at = part_end

    # ---------------------------------------------------------------- both

    async def _read(self, number: int, offset: Offset, end: Offset) -> Offset:
        """Feed a side's records from an offset to an end. Returns the offset after them."""
        side, progress = self._sides[number], self.progress
        progress.phase = f"reading the {side.name}"
        while offset < min(end, self._table.limit_offset):
            piece = await side.read(offset)
            if piece is None:
                bounds = await self._bounds(number)
                if bounds.start <= offset:
                    raise CannotRead(f"the {side.name}'s log was cut to {bounds.end} meanwhile")
                offset = bounds.start
                continue
            self._starts[number] = max(self._starts[number], piece.bounds.start)
            progress.read_bytes[number] += len(piece.records)
            following = piece.bounds.end
            if len(piece.records):
                following = await self._feed(number, piece.records, offset, piece.aborted)
            if following <= offset:
                raise CannotRead(f"the {side.name} has nothing at offset {offset}, below {end}")
            offset = following
        return offset

    async def _bounds(self, number: int) -> Bounds:
        """Returns a side's bounds, and notes where it starts."""
        bounds = await self._sides[number].bounds()
        self._starts[number] = max(self._starts[number], bounds.start)
        return bounds

    async def _feed(
        self, number: int, records: Buffer, offset: Offset, aborted: Sequence[tuple[int, int]]
    ) -> Offset:
        await self._thread.run(
            self._table.feed, records, side=number, first_offset=offset, aborted=aborted
        )
        return Offset(self._table.next_offset)

    async def _wait_for_mirror(self, end: Offset) -> None:
        """Wait until the mirror has what the source had. Raises MirrorIsBehind."""
        mirror = self._sides[MIRROR]
        until = self._monotonic() + self._wait_seconds
        while (has := (await mirror.bounds()).end) < end:
            self.progress.phase = f"waiting for the mirror: it has {has} of {end}"
            if self._monotonic() >= until:
                raise MirrorIsBehind(
                    f"after {self._wait_seconds:g} s the mirror has the source's records below offset"
                    f" {has}, not below {end}: kompakt replica status says why"
                )
            await self._sleep(POLL_SECONDS)

    async def _conclude(self, start: Offset, end: Offset) -> None:
        progress = self.progress
        found = await self._thread.run(self._table.compare, start_offset=start, end_offset=end)
        progress.found = together(progress.found, found)
        progress.start_offset = start if progress.parts == 1 else min(progress.start_offset, start)
        progress.end_offset = end if not self._by_key else _least(progress.end_offset, end)


def _least(before: int, end: int) -> int:
    return end if before < 0 else min(before, end)
