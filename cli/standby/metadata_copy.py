"""The copy of the metadata: a replica that follows, in a directory of its own. One thread at a time.

It makes its own snapshots (`replog/independent.py`), by the same settings as a broker. It never leads.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from time import monotonic

from cli.standby.followed_topics import FollowedTopic, followed_topics
from protocol.wire.errors import ProtocolError
from replog.entry import Kind
from replog.following import Follower
from replog.independent import Independent
from replog.messages import Answer, Diverging, Entries, Fetch, Request
from replog.replica import Replica, Role
from replog.trigger import CompactionSettings
from server.metadata.machine import MetadataMachine, fault_of_command
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

    def __init__(self, files: FileSystem, directory: str, settings: CompactionSettings) -> None:
        """Create the copy closed; `open` recovers it."""
        # Constant after construction
        self._replica = Replica(
            files,
            directory,
            MetadataMachine(),
            clock_ms=lambda: monotonic() * 1000,
            segment_bytes=settings.segment_bytes,
        )
        self._compactor = Independent(self._replica, settings)
        self._segment_bytes = settings.segment_bytes
        self._is_stopping = threading.Event()
        # Set by `open`
        self._follower: Follower

    def open(self) -> CopyFacts:
        """Recover what is there.

        Raises:
            CorruptLog, DamagedFile: entries can no longer be read.
            FormatFromTheFuture: a later release wrote the files.
        """
        self._replica.open()
        self._compactor.opened()
        self._follower = Follower(
            self._replica,
            self._compactor,
            MetadataMachine,
            segment_bytes=self._segment_bytes,
        )
        return self.facts()

    def request(self) -> Request:
        """Returns what to ask the leader next."""
        return self._follower.request()

    def receive(self, answer: Answer) -> CopyFacts:
        """Handle an answer, then make a snapshot if one is due.

        Raises:
            ProtocolError: the answer makes no sense, and nothing of it was taken.
            StorageError: the disk failed, or the leader's log is not the one that was followed.
        """
        if isinstance(answer, Entries):
            _check_commands(answer)
        self._take(answer)
        if self._replica.role is Role.LEARNER and self._compactor.due() is not None:
            self._snapshot()
        return self.facts()

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

    def stop(self) -> None:
        """Let a snapshot that is being written be given up soon; any thread may call."""
        self._is_stopping.set()

    def close(self) -> None:
        """Close the files. Everything that was appended is durable."""
        self._follower.stop()
        self._compactor.abandon()
        self._replica.close()

    def _snapshot(self) -> None:
        """Make a snapshot. If that fails, the entries are still in the log, and the next one tries."""
        try:
            self._write_snapshot()
        except StorageError as error:
            self._compactor.abandon()
            if self._replica.log.is_broken:
                raise
            _log.warning("could not write a snapshot: %s", error)

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
