"""A follower: it asks its leader for what comes next, and installs a snapshot if it must.

    Fetch          ->  Entries          append, apply
                       Diverging        truncate: these entries were never committed
                       SnapshotOffered  fetch that file into a part; check it; then replace state and log
                       LogOffered       fetch that log beside the old one, up to its END; then replace
    FetchSnapshot  ->  SnapshotBytes    append to the part; a repeated or late answer changes nothing

The old state is served until the new one is whole. A power cut while it is installing leaves the old
state. Source: Ongaro, Log Compaction in Raft, section 5.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from replog.checkpoints import PART, bytes_of, restore_rows, verify_bytes
from replog.compactor import LogCompactor
from replog.control import snapshot_in
from replog.entry import Entry, Frame, Kind, SnapshotId
from replog.entry_log import EntryLog
from replog.machine import StateMachine
from replog.messages import (
    Answer,
    Diverging,
    Entries,
    Fetch,
    FetchSnapshot,
    LogOffered,
    Request,
    SnapshotBytes,
    SnapshotOffered,
)
from replog.replica import Replica, Role, append_rolling, restore_from_log
from storage.files.errors import DamagedFile, StorageError
from storage.files.files import File

_log = logging.getLogger("replog.following")


class Follower:
    """Follows one leader. One thread at a time."""

    def __init__(
        self,
        replica: Replica,
        compactor: LogCompactor,
        new_machine: Callable[[], StateMachine],
        *,
        segment_bytes: int = 1 << 20,
    ) -> None:
        """Follow with an opened replica, and continue the download that it has kept.

        Args:
            new_machine: returns an empty machine, for a snapshot that is installed.
        """
        # Constant after construction
        self._replica = replica
        self._compactor = compactor
        self._new_machine = new_machine
        self._segment_bytes = segment_bytes
        # State
        self._leader_term = replica.log.last_term
        self._part: _Part | None = None
        self._incoming: EntryLog | None = None
        self.installs = 0
        """Snapshots installed."""
        self.damaged = 0
        """Snapshots that were received and not installed, because they were damaged."""
        if replica.received is not None:
            self._continue_part(replica.received)

    def request(self) -> Request:
        """Returns what to ask the leader next."""
        if self._replica.wanted is not None and self._part is None:
            self._begin_part(self._replica.wanted)
        if self._part is not None:
            return FetchSnapshot(self._part.snapshot, self._part.file.size)
        log = self._incoming or self._replica.log
        return Fetch(log.end, log.last_term)

    def receive(self, answer: Answer) -> None:
        """Handle an answer.

        Raises:
            StorageError: the disk failed, or the leader lacks entries that this copy knows as committed.
        """
        if answer.leader_term < self._leader_term:
            return
        self._leader_term = answer.leader_term
        if isinstance(answer, Entries):
            self._entries(answer)
        elif isinstance(answer, Diverging):
            self._diverging(answer)
        elif isinstance(answer, SnapshotOffered):
            self._offered(answer)
        elif isinstance(answer, LogOffered):
            self._log_offered(answer)
        else:
            self._bytes(answer)

    def stop(self) -> None:
        """Stop following: give up what is being installed, unless it is needed."""
        self._drop_part()
        self._drop_incoming()

    def close(self) -> None:
        """Close the files. What was received of a snapshot stays; another process may continue."""
        if self._part is not None:
            self._part.file.close()
            self._part = None
        self._drop_incoming()

    def writing_bytes(self) -> int:
        """Returns the bytes of what is being installed."""
        incoming = self._incoming.size_bytes if self._incoming else 0
        return incoming + (self._part.file.size if self._part else 0)

    # Entries.

    def _entries(self, answer: Entries) -> None:
        log = self._incoming or self._replica.log
        if answer.after != Fetch(log.end, log.last_term):
            return
        if self._incoming is not None:
            self._append_incoming(self._incoming, answer)
        elif self._replica.role is not Role.INSTALLING:
            for frame in answer.frames:
                self._replica.append_confirmed(_from(frame, self._replica.log.end))
                if self._replica.wanted is not None:
                    return
            self._replica.confirm(self._replica.log.end)

    def _diverging(self, answer: Diverging) -> None:
        replica = self._replica
        log = replica.log
        if self._incoming or answer.after != Fetch(log.end, log.last_term):
            return
        _, own_end = log.end_of_term(answer.term)
        end = min(answer.end, own_end)
        if end < replica.confirmed_end:
            raise StorageError(
                f"{replica.directory}: the leader's log ends at {end}, but entries up to"
                f" {replica.confirmed_end} were committed here: it is not a leader of this log"
            )
        replica.truncate(end)

    # A snapshot's file.

    def _offered(self, answer: SnapshotOffered) -> None:
        if self._has(answer.snapshot) and self._replica.wanted is None:
            return
        if self._part is not None and self._part.snapshot == answer.snapshot:
            return
        self._replica.role = Role.INSTALLING
        self._begin_part(answer.snapshot)

    def _has(self, snapshot: SnapshotId) -> bool:
        """Returns whether everything in the snapshot is here already."""
        if snapshot.end <= self._replica.confirmed_end:
            return True
        return self._replica.log.term_at(snapshot.end - 1) == snapshot.term

    def _begin_part(self, snapshot: SnapshotId) -> None:
        self._drop_part()
        self._drop_incoming()
        self._compactor.abandon()
        checkpoints = self._replica.checkpoints
        self._part = _Part(snapshot, checkpoints.begin_part(snapshot))

    def _continue_part(self, snapshot: SnapshotId) -> None:
        """Continue a download. What a power cut has torn is found when the whole is checked."""
        self._replica.role = Role.INSTALLING
        self._part = _Part(snapshot, self._replica.checkpoints.open_part(snapshot))

    def _bytes(self, answer: SnapshotBytes) -> None:
        part = self._part
        if part is None or part.snapshot != answer.snapshot or part.file.size != answer.position:
            return
        if answer.data:
            part.file.append([answer.data])
        if part.file.size >= answer.size:
            self._install(part)

    def _install(self, part: _Part) -> None:
        replica = self._replica
        part.file.sync()
        path = replica.checkpoints.path(part.snapshot)
        data = bytes_of(replica.files, path + PART)
        try:
            checkpoint = verify_bytes(data, path, part.snapshot)
            machine = self._new_machine()
            restore_rows(data, path, machine, checkpoint.digest)
        except DamagedFile as error:
            _log.warning("received a damaged snapshot, fetching it again: %s", error)
            self.damaged += 1
            self._begin_part(part.snapshot)
            return
        part.file.close()
        self._part = None
        replica.install(checkpoint, machine)
        self._compactor.installed()
        self.installs += 1

    def _drop_part(self) -> None:
        if self._part is not None:
            self._part.file.close()
            self._replica.checkpoints.discard_part(self._part.snapshot)
            self._part = None

    # A log with a snapshot in it.

    def _log_offered(self, answer: LogOffered) -> None:
        replica = self._replica
        if self._has(SnapshotId(answer.base, answer.previous_term)):
            return
        if self._incoming is not None and self._incoming.start == answer.base:
            return
        replica.role = Role.INSTALLING
        self._drop_part()
        self._drop_incoming()
        self._compactor.abandon()
        self._incoming = EntryLog.create(
            replica.files, replica.directory, answer.base, answer.previous_term
        )

    def _append_incoming(self, incoming: EntryLog, answer: Entries) -> None:
        for frame in answer.frames:
            append_rolling(incoming, _from(frame, incoming.end), self._segment_bytes)
        if any(kind is Kind.END for frame in answer.frames for kind, _ in frame.contents):
            self._install_log(incoming)

    def _install_log(self, incoming: EntryLog) -> None:
        replica = self._replica
        found = snapshot_in(_all_entries(incoming), incoming.start)
        if found is None:
            return
        machine = self._new_machine()
        try:
            checkpoint = restore_from_log(found, machine, replica.directory)
        except DamagedFile as error:
            _log.warning("received a damaged log, fetching it again: %s", error)
            self.damaged += 1
            self._drop_incoming()
            return
        self._incoming = None
        replica.install_log(incoming, checkpoint, machine)
        self._compactor.installed()
        self.installs += 1
        replica.confirm(replica.log.end)

    def _drop_incoming(self) -> None:
        if self._incoming is not None:
            self._incoming.remove()
            self._incoming = None


class _Part:
    """A snapshot's file that is being received."""

    __slots__ = ("file", "snapshot")

    def __init__(self, snapshot: SnapshotId, file: File) -> None:
        self.snapshot = snapshot
        self.file = file


def _from(frame: Frame, start: int) -> Frame:
    """Returns the part of a frame from `start` on."""
    assert frame.index <= start < frame.end
    return Frame(start, frame.term, frame.contents[start - frame.index :])


def _all_entries(log: EntryLog) -> list[Entry]:
    return [entry for frame in log.frames(log.start) for entry in frame.entries()]
