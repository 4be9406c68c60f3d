"""The snapshots of a broker: makes one at a time (`making.py`), lists and drops them.

What they hold of the disk is counted when one is made or dropped, and now and then, because what a pass
or retention removes from a log may be left in snapshots only. A scrape shows the last count.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from metrics.facts import SnapshotFacts
from server.runtime.tasks import every, spawn, to_its_end
from server.snapshots.making import Making, Sources, Wanted
from server.snapshots.refusal import SnapshotRefused
from server.views.snapshot_topics import SnapshotTopics
from storage.files.errors import LinksRefused, NoSpace, StorageError
from storage.snapshots.pinned import PinnedBytes
from storage.snapshots.snapshot_files import StoredSnapshot
from storage.state.moment import MomentLost
from storage.threads import any_thread, loop_thread

ATTEMPTS = 3
"""A log that is truncated meanwhile spoils an attempt."""
COUNT_SECONDS = 60.0
"""The pause between two counts of what snapshots hold, if none is made or dropped."""
COUNT_SHARE_MAX = 0.02
"""The largest part of the time that these counts take: they look at every file of every snapshot."""

_log = logging.getLogger("server.snapshots.snapshots")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """What snapshots held of the disk when it was counted."""

    facts: SnapshotFacts = field(default_factory=SnapshotFacts)
    pinned: PinnedBytes = field(default_factory=PinnedBytes)
    counted_s: float = 0.0
    """When the count ended, on the monotonic clock."""
    took_s: float = 0.0

    def is_due(self, now_s: float) -> bool:
        return now_s - self.counted_s >= max(COUNT_SECONDS, self.took_s / COUNT_SHARE_MAX)


@loop_thread
class Snapshots:
    """The snapshots of one broker."""

    __slots__ = (
        "_counting", "_forget_offsets", "_held", "_is_idle", "_is_stopping", "_readable", "_sources",
    )  # fmt: skip

    def __init__(
        self,
        sources: Sources,
        readable: SnapshotTopics,
        forget_offsets: Callable[[AbstractSet[str]], Awaitable[None]],
    ) -> None:
        """
        Args:
            readable: the topics in snapshots, which clients can read.
            forget_offsets: deletes what groups have committed for topics that are gone.
        """
        # Constant after construction
        self._sources = sources
        self._readable = readable
        self._forget_offsets = forget_offsets
        # State
        self._is_idle = asyncio.Event()
        """Set while no snapshot is being made."""
        self._is_idle.set()
        self._is_stopping = False
        self._held = _Held()
        self._counting: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Remove what earlier runs have left unfinished, let clients read the snapshots, and start to
        count what they hold."""
        await self._sources.thread.run(self._sources.files.remove_unfinished)
        try:
            found = await self.all()
        except StorageError as error:
            _log.warning("the snapshots cannot be read before the next start: %s", error)
            found = []
        for each in found:
            if each.descriptor is not None:
                await self._readable.add(each.descriptor)
        count = every(COUNT_SECONDS, self._count_if_due, "count of pinned bytes", at_once=True)
        self._counting = spawn(count, "count of pinned bytes")

    async def stop(self) -> None:
        """End what is being made or dropped; the next start removes what is left of it."""
        self._is_stopping = True
        if self._counting is not None:
            self._counting.cancel()
        await self._is_idle.wait()
        # The thread is the only one of its pool, so this comes after what it is doing.
        await self._sources.thread.run(_nothing)
        self._readable.close()

    async def all(self) -> list[StoredSnapshot]:
        """Returns the snapshots, the oldest first; those that are not complete come last.

        Raises:
            StorageError: a directory cannot be read.
        """
        return await self._sources.thread.run(self._sources.files.all)

    async def drop(self, snapshot_id: str) -> bool:
        """Remove a snapshot. Returns whether there was one. Continues if the caller is cancelled.

        Raises:
            StorageError: some of it may be left; it can be dropped again.
        """
        return await to_its_end(self._drop(snapshot_id))

    async def _drop(self, snapshot_id: str) -> bool:
        gone = self._readable.remove(snapshot_id)
        is_known = await self._sources.thread.run(self._sources.files.drop, snapshot_id)
        await self._forget_offsets(set(gone))
        if is_known:
            await self._count()
        return is_known

    # ---------------------------------------------------------------- what they hold of the disk

    @property
    def pinned(self) -> PinnedBytes:
        """The bytes of files that only snapshots hold, as last counted."""
        return self._held.pinned

    @any_thread
    def facts(self) -> SnapshotFacts:
        """Returns what a scrape shows, as last counted."""
        return self._held.facts

    async def _count_if_due(self) -> None:
        now_s = monotonic()
        # What only snapshots hold does not change without any.
        is_needed = bool(self._held.pinned.alone) and self._held.is_due(now_s)
        if is_needed or not self._held.counted_s:
            await self._count()

    async def _count(self) -> None:
        try:
            self._held = await self._sources.thread.run(self._counted)
        except StorageError as error:
            _log.warning("cannot count what snapshots hold of the disk: %s", error)

    @any_thread
    def _counted(self) -> _Held:
        began_s = monotonic()
        files = self._sources.files
        complete = [each for each in files.all() if each.descriptor is not None]
        pinned = files.pinned()
        facts = SnapshotFacts(
            count=len(complete),
            size_bytes=sum(each.size_bytes for each in complete),
            pinned_bytes=pinned.total,
        )
        ended_s = monotonic()
        return _Held(facts=facts, pinned=pinned, counted_s=ended_s, took_s=ended_s - began_s)

    # ---------------------------------------------------------------- making one

    def descriptor_path(self, snapshot_id: str) -> str:
        """Returns the absolute path of a snapshot's descriptor."""
        return str(Path(self._sources.files.descriptor_path(snapshot_id)).absolute())

    async def create(self, wanted: Wanted) -> StoredSnapshot:
        """Make a snapshot. Continues if the caller is cancelled.

        The topics of the coordinators are part of every snapshot of now: so it has the groups' offsets
        and the open transactions of the same moment.

        Raises:
            SnapshotRefused: with the reason; nothing is left of it.
        """
        if not self._is_idle.is_set():
            raise SnapshotRefused(409, "another snapshot is being made: ask again when it is done")
        self._is_idle.clear()
        try:
            return await to_its_end(self._create(wanted))
        finally:
            self._is_idle.set()

    async def _create(self, wanted: Wanted) -> StoredSnapshot:
        why = ""
        for _ in range(ATTEMPTS):
            making = Making(self._sources, wanted, is_stopping=lambda: self._is_stopping)
            try:
                with _refusals():
                    made = await making.run()
            except MomentLost as lost:
                why = str(lost)
            else:
                assert made.descriptor is not None
                await self._readable.add(made.descriptor)
                await self._count()
                return made
        raise SnapshotRefused(409, f"{why}: ask again")


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Turn what storage refuses into a sentence for the client."""
    try:
        yield
    except LinksRefused as error:
        raise SnapshotRefused(
            409, f"the file system of a log directory has no hard links: {error}"
        ) from error
    except NoSpace as error:
        raise SnapshotRefused(507, f"the disk is full: {error}") from error
    except StorageError as error:
        raise SnapshotRefused(500, f"the snapshot could not be made: {error}") from error


@any_thread
def _nothing() -> None:
    """Does nothing, after what was submitted before it."""
