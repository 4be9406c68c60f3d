"""The copy of the metadata: a replica that follows, in a directory of its own. One thread at a time.

It makes its own snapshots (`replog/independent.py`), by the same settings as a broker. It never leads.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from time import monotonic

from cli.standby.followed_topics import FollowedTopic, followed_topics
from replog.following import Follower
from replog.independent import Independent
from replog.messages import Answer, Fetch, Request
from replog.replica import Replica, Role
from replog.trigger import CompactionSettings
from server.metadata.machine import MetadataMachine
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
            StorageError: the disk failed, or the leader lacks what was committed here.
        """
        self._follower.receive(answer)
        if self._replica.role is Role.LEARNER and self._compactor.due() is not None:
            self._snapshot()
        return self.facts()

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
