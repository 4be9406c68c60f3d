"""The new copies of one link's mirrors: begins resyncs, has their copies made and dropped, and finds
what they have put aside. `resync.py` decides, and `writer.py` does it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from server.replication.aside_logs import AsideLog
from server.replication.mirror import Mirror
from server.replication.resync import begins_by_itself, needs_aside, refusal_of_resync
from server.replication.state_table import Guard, MirrorState
from server.replication.writer import MirrorWriter
from storage.files.errors import StorageError
from storage.formats.topic_partition import TopicPartition
from storage.threads import loop_thread

_log = logging.getLogger("server.replication")


@loop_thread
class NewCopies:
    """Resyncs of the mirrors of a link."""

    __slots__ = ("_looked_ms", "_may_have_own", "_mirrors", "_writer")

    def __init__(
        self,
        mirrors: Mapping[TopicPartition, Mirror],
        writer: MirrorWriter,
        may_have_own: Callable[[Mirror], bool],
    ) -> None:
        """
        Args:
            mirrors: the link's, which changes them.
            may_have_own: returns whether a mirror's log may have records that the source never had.
        """
        # Constant after construction
        self._mirrors = mirrors
        self._writer = writer
        self._may_have_own = may_have_own
        # State: since when each mirror had failed that waits for an operator.
        self._looked_ms: dict[TopicPartition, int] = {}

    def begin(
        self, topic: str | None, partition: int | None, *, puts_aside: bool
    ) -> tuple[list[TopicPartition], dict[TopicPartition, str]]:
        """Copy failed partitions once more, beside their logs.

        Args:
            topic: None for all failed partitions of the link.
            partition: None for all failed partitions of the topic.

        Returns those that have begun, and why others cannot. A partition that has not failed is among
        these only if it was named.
        """
        begun, refused = list[TopicPartition](), dict[TopicPartition, str]()
        for each, mirror in self._mirrors.items():
            if topic not in (None, each.topic) or partition not in (None, each.partition):
                continue
            if partition is None and mirror.state is not MirrorState.FAILED:
                continue
            reason = refusal_of_resync(
                mirror.state,
                mirror.cause,
                puts_aside=puts_aside,
                is_offline=mirror.log.offline_reason is not None,
            )
            if reason or mirror.cause is None:
                refused[each] = reason
            else:
                mirror.begin_resync(mirror.cause, puts_aside=puts_aside)
                begun.append(each)
        return begun, refused

    async def begin_by_themselves(self, mode: str, *, again: bool) -> None:
        """Begin what needs no operator.

        Args:
            mode: `LinkSpec.resync`.
            again: whether to look once more at those that an earlier call has left to an operator.
        """
        for partition, mirror in list(self._mirrors.items()):
            if not _begins_by_itself(mode, mirror, has_aside=False):
                continue
            if not again and self._looked_ms.get(partition) == mirror.since_ms:
                continue
            self._looked_ms[partition] = mirror.since_ms
            try:
                has_aside = self._needs_aside(mirror) and bool(
                    await self._writer.put_aside(mirror.log)
                )
            except StorageError as error:
                _log.error("%s: cannot be resynced: %s", mirror.log.topic_partition, error)
                continue
            if _begins_by_itself(mode, mirror, has_aside=has_aside):
                assert mirror.cause is not None
                puts_aside = mirror.cause is not Guard.MISSED_TOMBSTONES
                mirror.begin_resync(mirror.cause, puts_aside=puts_aside)

    def _needs_aside(self, mirror: Mirror) -> bool:
        is_compacted = mirror.log.config.is_compacted
        return needs_aside(
            mirror.cause, is_compacted=is_compacted, may_have_own=self._may_have_own(mirror)
        )

    async def tend(self) -> None:
        """Drop the copies of resyncs that have ended without them, and make those of new ones."""
        for mirror in list(self._mirrors.values()):
            if mirror.left_over is not None:
                await self._writer.drop_copy(mirror)
            resync = mirror.resync
            if mirror.state is MirrorState.RESYNC and resync and resync.target is None:
                await self._writer.begin_copy(mirror)

    async def drop(self) -> None:
        """Drop the copies of stopped mirrors."""
        for mirror in list(self._mirrors.values()):
            await self._writer.drop_copy(mirror)

    async def put_aside(self) -> dict[TopicPartition, list[AsideLog]]:
        """Returns the logs that resyncs have put aside, of partitions that have some. Those of a disk
        that has failed are left out."""
        logs = [mirror.log for mirror in self._mirrors.values() if not mirror.log.offline_reason]
        try:
            found = await self._writer.put_aside(*logs)
        except StorageError as error:
            _log.error("cannot look for what resyncs have put aside: %s", error)
            return {}
        return {log.topic_partition: found[log.directory] for log in logs if log.directory in found}


def _begins_by_itself(mode: str, mirror: Mirror, *, has_aside: bool) -> bool:
    return begins_by_itself(
        mode,
        mirror.state,
        mirror.cause,
        has_failed=mirror.resyncs_started > mirror.resyncs_completed,
        has_aside=has_aside,
    )
