"""The snapshots of a broker: makes one at a time (`making.py`), lists and drops them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from server.runtime.tasks import to_its_end
from server.snapshots.making import Making, Sources
from server.snapshots.refusal import SnapshotRefused
from server.views.snapshot_topics import SnapshotTopics
from storage.files.errors import LinksRefused, NoSpace, StorageError
from storage.log.moment import MomentLost
from storage.snapshots.descriptor import SnapshotDescriptor
from storage.snapshots.snapshot_files import StoredSnapshot
from storage.threads import any_thread, loop_thread

ATTEMPTS = 3
"""A log that is truncated, or a topic that is deleted, meanwhile spoils an attempt."""


@loop_thread
class Snapshots:
    """The snapshots of one broker."""

    __slots__ = ("_forget_offsets", "_is_idle", "_is_stopping", "_readable", "_sources")

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

    async def open(self) -> None:
        """Remove what earlier runs have left unfinished, and let clients read the snapshots."""
        await self._sources.thread.run(self._sources.files.remove_unfinished)
        for each in await self.all():
            if each.descriptor is not None:
                await self._readable.add(each.descriptor)

    async def stop(self) -> None:
        """End what is being made or dropped; the next start removes what is left of it."""
        self._is_stopping = True
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
        was_there = await self._sources.thread.run(self._sources.files.drop, snapshot_id)
        await self._forget_offsets(set(gone))
        return was_there

    def descriptor_path(self, snapshot_id: str) -> str:
        """Returns the absolute path of a snapshot's descriptor."""
        return str(Path(self._sources.files.descriptor_path(snapshot_id)).absolute())

    async def create(self, names: Sequence[str] | None) -> SnapshotDescriptor:
        """Make a snapshot of these topics, or of all. Continues if the caller is cancelled.

        The topics of the coordinators are always part of it: so it has the groups' offsets and the open
        transactions of the same moment.

        Raises:
            SnapshotRefused: with the reason; nothing is left of it.
        """
        if not self._is_idle.is_set():
            raise SnapshotRefused(409, "another snapshot is being made: ask again when it is done")
        self._is_idle.clear()
        try:
            return await to_its_end(self._create(names))
        finally:
            self._is_idle.set()

    async def _create(self, names: Sequence[str] | None) -> SnapshotDescriptor:
        why = ""
        for _ in range(ATTEMPTS):
            making = Making(self._sources, names, is_stopping=lambda: self._is_stopping)
            try:
                with _refusals():
                    made = await making.run()
                await self._readable.add(made)
                return made
            except MomentLost as lost:
                why = str(lost)
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
