"""Checkpoints that followers download: each stays open, so that a later one may replace its name.

    newest      the partition's checkpoint, if it ends where the follower needs it or later; else a new
                one is made (`checkpoint_upkeep.py`)
    pieces      by id (end offset, last epoch), from the open file or, after a restart, from the one that
                has the partition's name if it is the same
    closed      a minute after the last piece

Source: KIP-630 for the messages (`server/handlers/shared/checkpoint_pieces.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from cleaner.checkpoints.reading import CheckpointReader
from cleaner.checkpoints.validity import objection, place_in
from server.runtime.executors import Executor
from storage.files.errors import DamagedFile, FormatFromTheFuture, MissingFile
from storage.files.paths import checkpoint_path
from storage.log.log import PartitionLog
from storage.threads import any_thread, loop_thread

OPEN_SECONDS = 60.0
OFFERS_MAX = 16
"""The most files that stay open; more downloads than that are not admitted at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferId:
    """How followers name a checkpoint."""

    topic_id: uuid.UUID
    partition: int
    end_offset: int
    last_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Bytes of a checkpoint."""

    id: OfferId
    position: int
    data: bytes
    size: int
    """Of the whole file."""


@dataclass(slots=True, kw_only=True)
class _Offer:
    """An open checkpoint."""

    reader: CheckpointReader
    until_s: float
    reads: int = 0
    """Threads that are reading."""


@loop_thread
class CheckpointOffers:
    """The open checkpoints of one broker."""

    __slots__ = ("_clock", "_executor", "_offers")

    def __init__(self, executor: Executor, *, clock: Callable[[], float]) -> None:
        """
        Args:
            executor: opens, reads and closes files.
            clock: returns seconds that never go back.
        """
        # Constant after construction
        self._executor = executor
        self._clock = clock
        # State: the one that was read least recently first.
        self._offers: dict[OfferId, _Offer] = {}

    @property
    def open_count(self) -> int:
        """How many checkpoints are open."""
        return len(self._offers)

    async def open(self, log: PartitionLog, end_min: int, *, is_new: bool) -> OfferId | None:
        """Open a partition's checkpoint.

        Args:
            end_min: where it must end, or later.
            is_new: whether it was just made; otherwise it must be one that a load would use.

        Returns:
            Its id; None if there is no such one.

        Raises:
            StorageError: the disk failed.
        """
        found = await self._executor.run(_open, log, end_min, is_new)
        if found is None:
            return None
        return await self._keep(log, found)

    async def read(
        self, log: PartitionLog, wanted: OfferId, position: int, size: int
    ) -> Piece | None:
        """Read bytes of an offered checkpoint. Returns None if it is no longer there.

        Raises:
            StorageError: the disk failed.
        """
        offer = self._offers.pop(wanted, None)
        if offer is None:
            found = await self._executor.run(_open, log, wanted.end_offset, True)
            if found is None or await self._keep(log, found) != wanted:
                return None
            offer = self._offers.pop(wanted)
        offer.until_s = self._clock() + OPEN_SECONDS
        self._offers[wanted] = offer
        offer.reads += 1
        try:
            data = await self._executor.run(offer.reader.read_at, position, size)
        finally:
            offer.reads -= 1
        return Piece(id=wanted, position=position, data=data, size=offer.reader.size)

    async def expire(self) -> None:
        """Close what was not read for a while."""
        now_s = self._clock()
        await self._close([each for each, offer in self._offers.items() if offer.until_s <= now_s])

    async def close(self) -> None:
        """Close all of them."""
        await self._close(list(self._offers))

    async def _keep(self, log: PartitionLog, reader: CheckpointReader) -> OfferId:
        header = reader.header
        found = OfferId(
            topic_id=log.topic_id,
            partition=log.topic_partition.partition,
            end_offset=header.end_offset,
            last_epoch=header.last_epoch,
        )
        if found in self._offers:
            await self._executor.run(reader.close)
            return found
        await self._close(list(self._offers)[: max(0, len(self._offers) - OFFERS_MAX + 1)])
        until_s = self._clock() + OPEN_SECONDS
        self._offers[found] = _Offer(reader=reader, until_s=until_s)
        return found

    async def _close(self, gone: list[OfferId]) -> None:
        for each in gone:
            offer = self._offers.get(each)
            if offer is not None and not offer.reads:
                del self._offers[each]
                await self._executor.run(offer.reader.close)


@any_thread
def _open(log: PartitionLog, end_min: int, is_new: bool) -> CheckpointReader | None:
    """Open a partition's checkpoint if it can be used. Blocks."""
    fs = log.segments[-1].fs
    try:
        reader = CheckpointReader(fs, checkpoint_path(log.directory))
    except (MissingFile, DamagedFile, FormatFromTheFuture):
        return None
    header = reader.header
    is_ours = header.topic_id == log.topic_id and header.end_offset >= end_min
    if is_ours and (is_new or objection(header, place_in(log, header.end_offset)) is None):
        return reader
    reader.close()
    return None
