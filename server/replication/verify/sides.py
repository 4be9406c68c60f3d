"""The two copies of a partition that are compared: the source's, read by Fetch, and the mirror's log.

Both are read as a consumer with read_committed reads: whole batches, each with the aborted transactions
in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from protocol.messages.fetch import FetchResponse, PartitionData
from protocol.messages.list_offsets import ListOffsetsResponse
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset
from server.client.broker_client import BrokerClient
from server.replication.requests import (
    EARLIEST,
    LATEST,
    Asked,
    FetchBounds,
    fetch_request,
    offsets_answer,
    offsets_request,
)
from server.replication.source_topics import SourcePartition
from server.runtime.executors import Executor
from storage.files.files import Buffer
from storage.log.log import PartitionLog
from storage.segment.reader import Isolation

NO_EPOCH = Epoch(-1)
THROTTLED_TRIES = 100
"""A source may answer a fetch without the partition while this client's quota is used up."""


class CannotRead(Exception):
    """A side cannot be read, in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Where a side may be read."""

    start: Offset
    end: Offset
    """The last stable offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Whole batches from an offset on; the last one may be cut off."""

    records: Buffer
    """Empty: the side has no batch between the offset and `bounds.end`."""
    aborted: Sequence[tuple[int, int]]
    """Producer id and first offset of each aborted transaction in the batches."""
    bounds: Bounds


class Side(Protocol):
    """One copy of a partition."""

    name: str

    async def bounds(self) -> Bounds:
        """Returns its bounds now. Raises CannotRead, ClientFailed, StorageError."""

    async def read(self, offset: Offset) -> Piece | None:
        """Returns what follows an offset; None if that is outside its bounds. Raises as `bounds`."""


class MirrorSide:
    """The mirror's own log, read in a thread, as long as it is not cut or replaced."""

    name = "mirror"

    def __init__(self, log: PartitionLog, thread: Executor, *, bytes_max: int) -> None:
        # Constant after construction
        self._log = log
        self._thread = thread
        self._bytes_max = bytes_max
        # State
        self._rewrites: int | None = None
        """Those of the log at the first read."""

    async def bounds(self) -> Bounds:
        """Returns the log start and the last stable offset."""
        return Bounds(start=self._log.log_start_offset, end=self._log.last_stable_offset)

    async def read(self, offset: Offset) -> Piece | None:
        """Returns what follows an offset. Raises StorageError, CannotRead."""
        if self._rewrites is None:
            self._rewrites = self._log.rewrites
        piece = await self._thread.run(self._read, offset)
        self.check_is_one_log()
        return piece

    def check_is_one_log(self) -> None:
        """Raise CannotRead if the log was cut or replaced since the first read.

        Records of two logs would be compared as if they were those of one.
        """
        if self._rewrites not in (None, self._log.rewrites):
            raise CannotRead(
                "the mirror's log was cut, or a resync has replaced it, while it was compared: verify"
                " again"
            )

    def _read(self, offset: Offset) -> Piece | None:
        found = self._log.reader.read(
            offset,
            max_bytes=self._bytes_max,
            whole_first_batch=True,
            isolation=Isolation.READ_COMMITTED,
        )
        if isinstance(found, ErrorCode):
            return None
        try:
            records = b"".join(region.read_bytes() for region in found.regions)
        finally:
            found.release()
        bounds = Bounds(start=found.log_start_offset, end=found.last_stable_offset)
        return Piece(records=records, aborted=found.aborted, bounds=bounds)


class SourceSide:
    """A partition of the source, read by Fetch over a connection of its own."""

    name = "source"

    def __init__(self, client: BrokerClient, at: SourcePartition, bounds: FetchBounds) -> None:
        self._client = client
        self._at = at
        self._bounds = replace(bounds, wait_ms=0)

    async def bounds(self) -> Bounds:
        """Returns the log start and the last stable offset."""
        start, end = [await self._offset(timestamp) for timestamp in (EARLIEST, LATEST)]
        return Bounds(start=start, end=end)

    async def _offset(self, timestamp: int) -> Offset:
        request = replace(
            offsets_request([self._at.partition], timestamp),
            isolation_level=Isolation.READ_COMMITTED,
        )
        answer = await self._client.call(request, ListOffsetsResponse)
        found = offsets_answer(answer).get(self._at.partition)
        if found is None:
            raise CannotRead(
                f"the source does not say where {self._at.partition} starts and ends: its leader may"
                " have changed, so try again"
            )
        return found

    async def read(self, offset: Offset) -> Piece | None:
        """Returns what follows an offset."""
        data = await self._fetch(offset)
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return None
        if data.error_code:
            text = ErrorCode.from_wire(data.error_code).message
            raise CannotRead(f"the source refused a fetch of {self._at.partition}: {text}")
        records = data.records if data.records is not None else b""
        assert isinstance(records, bytes | bytearray | memoryview)
        return Piece(
            records=records,
            aborted=[
                (each.producer_id, each.first_offset) for each in data.aborted_transactions or ()
            ],
            bounds=Bounds(start=Offset(data.log_start_offset), end=Offset(data.last_stable_offset)),
        )

    async def _fetch(self, offset: Offset) -> PartitionData:
        asked = Asked(
            partition=self._at.partition,
            topic_id=self._at.topic_id,
            end=offset,
            last_epoch=NO_EPOCH,
        )
        request = replace(
            fetch_request([asked], self._bounds), isolation_level=Isolation.READ_COMMITTED
        )
        for _ in range(THROTTLED_TRIES):
            response = await self._client.call(request, FetchResponse)
            if response.error_code:
                text = ErrorCode.from_wire(response.error_code).message
                raise CannotRead(f"the source refused a fetch: {text}")
            if response.throttle_time_ms:
                await asyncio.sleep(response.throttle_time_ms / 1000)
            if response.responses and response.responses[0].partitions:
                return response.responses[0].partitions[0]
        raise CannotRead("the source's quota for this client leaves no room for a fetch")
