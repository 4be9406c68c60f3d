"""The copy of the metadata: a replica that follows, in a directory of its own. One thread at a time.

It makes its own snapshots (`replog/independent.py`), by the same settings as a broker. It never leads.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic

from protocol.wire.errors import ProtocolError
from replog.entry import Frame, Kind
from replog.following import Follower
from replog.independent import Independent
from replog.messages import Answer, Diverging, Entries, Fetch, Request, SnapshotOffered
from replog.replica import Replica, Role
from replog.trigger import RETRY_SECONDS, CompactionSettings
from server.metadata.machine import MetadataMachine, fault_of_command
from server.standby.followed_topics import FollowedTopic, followed_topics, partition_count
from storage.files.errors import StorageError
from storage.files.files import FileSystem

_log = logging.getLogger("cli.standby")


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFacts:
    """What the copy has."""

    end: int
    """The index after the last entry that is applied."""
    term: int
    """The term of the log's last entry."""
    digest: int
    """The digest of the state at `end`."""
    revision: int
    snapshot_end: int
    """The end of the last snapshot."""
    installs: int
    """Snapshots that were taken from a leader since the start."""
    disk_bytes: int
    topics: tuple[FollowedTopic, ...] = ()
    """The coordinators' topics."""


class MetadataCopy:
    """The replica with its follower."""

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        settings: CompactionSettings,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Create the copy closed; `open` recovers it."""
        # Constant after construction
        self._replica = Replica(
            files,
            directory,
            MetadataMachine(),
            clock_ms=lambda: clock() * 1000,
            segment_bytes=settings.segment_bytes,
        )
        self._compactor = Independent(self._replica, settings)
        self._segment_bytes = settings.segment_bytes
        self._clock = clock
        self._is_stopping = threading.Event()
        # State
        # The last entries, until the leader of this connection has shown the same.
        self._compared_first: Frame | None = None
        # No snapshot is tried before this time.
        self._next_attempt_s = clock()
        # Set by `open`
        self._follower: Follower

    def open(self) -> CopyFacts:
        """Recover what is there.

        Raises:
            CorruptLog, DamagedFile: entries can no longer be read.
            FormatFromTheFuture: a later release wrote the files.
        """
        self._replica.open(continues_download=True)
        self._compactor.opened()
        self._follower = Follower(
            self._replica,
            self._compactor,
            MetadataMachine,
            segment_bytes=self._segment_bytes,
        )
        return self.facts()

    def connected(self) -> None:
        """Begin with a leader: at first it must show that it has the last entries that are here.

        A Fetch compares terms only. A leader that was restored from an older backup may have written
        other entries in the term that was followed.
        """
        replica, log = self._replica, self._replica.log
        self._compared_first = None
        if replica.role is not Role.INSTALLING and log.end > log.start:
            *_, self._compared_first = log.frames(log.end - 1)

    def request(self) -> Request:
        """Returns what to ask the leader next."""
        frame = self._compared_first
        if frame is None:
            return self._follower.request()
        term_before = self._replica.log.term_at(frame.index - 1)
        assert term_before is not None, "the log knows the term before each of its entries"
        return Fetch(frame.index, term_before)

    def receive(self, answer: Answer) -> CopyFacts:
        """Handle an answer, then make a snapshot if one is due.

        Raises:
            ProtocolError: the answer makes no sense, and nothing of it was taken.
            StorageError: the disk failed, or the leader's log is not the one that was followed.
        """
        if isinstance(answer, Entries):
            _check_commands(answer)
        frame = self._compared_first
        if frame is None:
            self._take(answer)
        else:
            self._compared_first = None
            self._compare(frame, answer)
        if self._replica.role is Role.LEARNER and self._may_snapshot():
            self._snapshot()
        return self.facts()

    def _compare(self, frame: Frame, answer: Answer) -> None:
        """Compare the last frame with the leader's, then take the entries after it.

        Raises:
            StorageError: the leader has another one.
        """
        if isinstance(answer, SnapshotOffered):
            return  # The leader no longer has these entries.
        log = self._replica.log
        if not isinstance(answer, Entries) or not answer.frames or answer.frames[0] != frame:
            raise StorageError(
                f"{self._replica.directory}: the leader has not the entry {frame.end - 1} that this"
                " standby has followed: it was restored from an older backup. To follow it, empty the"
                " standby's directory"
            )
        rest = answer.frames[1:]
        self._take(Entries(answer.leader_term, Fetch(log.end, log.last_term), rest))

    def _take(self, answer: Answer) -> None:
        follower, before, asked = self._follower, self._follower.damaged, self.request()
        follower.receive(answer)
        if follower.damaged > before:
            raise ProtocolError("the snapshot is damaged, and is fetched again")
        if isinstance(answer, Diverging) and asked == answer.after == self.request():
            raise StorageError(
                f"{self._replica.directory}: the leader's log differs from this one before its end at"
                f" {answer.after.end}: to follow that leader, empty the standby's directory"
            )

    def give_up_snapshot(self) -> Fetch:
        """Drop what was received of a snapshot that the leader no longer has.

        Returns what to ask instead; the leader then says which snapshot to take.
        """
        self._follower.stop()
        self._replica.role = Role.LEARNER
        log = self._replica.log
        return Fetch(log.end, log.last_term)

    def facts(self) -> CopyFacts:
        """Returns what the copy has now."""
        replica = self._replica
        machine = replica.machine
        assert isinstance(machine, MetadataMachine)
        return CopyFacts(
            end=replica.applied_end,
            term=replica.log.last_term,
            digest=machine.digest(),
            revision=machine.revision,
            snapshot_end=replica.snapshot.end,
            installs=self._follower.installs,
            disk_bytes=self._compactor.disk_use().total_bytes + self._follower.writing_bytes(),
            topics=followed_topics(machine),
        )

    def partition_counts(self, topics: Sequence[tuple[str, uuid.UUID]]) -> list[int]:
        """Returns how many partitions the topic of each name and id has; 0 if there is none."""
        machine = self._replica.machine
        assert isinstance(machine, MetadataMachine)
        return [partition_count(machine, name, topic_id) for name, topic_id in topics]

    def stop(self) -> None:
        """Let a snapshot that is being written be given up soon; any thread may call."""
        self._is_stopping.set()

    def close(self) -> None:
        """Close the files. Everything that was appended is durable."""
        self._follower.close()
        self._compactor.abandon()
        self._replica.close()

    def _may_snapshot(self) -> bool:
        return self._compactor.due() is not None and self._clock() >= self._next_attempt_s

    def _snapshot(self) -> None:
        """Make a snapshot. If that fails, the entries are still in the log, and a later one is tried."""
        try:
            self._write_snapshot()
        except StorageError as error:
            self._compactor.abandon()
            if self._replica.log.is_broken:
                raise
            self._next_attempt_s = self._clock() + RETRY_SECONDS
            _log.warning(
                "could not write a snapshot, next attempt in %.0f s: %s", RETRY_SECONDS, error
            )

    def _write_snapshot(self) -> None:
        self._compactor.begin()
        while self._compactor.step():
            if self._is_stopping.is_set():
                self._compactor.abandon()
                return
        self._compactor.finish()


def _check_commands(answer: Entries) -> None:
    """Raise ProtocolError if a command cannot be applied: once in the log, it would end every start."""
    for frame in answer.frames:
        for index, (kind, payload) in enumerate(frame.contents, frame.index):
            fault = fault_of_command(payload) if kind is Kind.COMMAND else None
            if fault is not None:
                raise ProtocolError(
                    f"entry {index} is no command that this release knows ({fault}); if the leader runs"
                    " a later release, upgrade this standby"
                )
