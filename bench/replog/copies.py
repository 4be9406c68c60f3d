"""A leader and three followers in one process, which count the bytes that they send and write.

Files are real and never synced; messages are handed over. Of a message the frames or the snapshot's
bytes count, not what a wire puts around them.
"""

from __future__ import annotations

import enum
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

from replog.checkpoints import PART
from replog.compactor import LogCompactor, Placement
from replog.entry import Kind
from replog.following import Follower
from replog.frames import encode_frame
from replog.in_log import InLog
from replog.independent import Independent
from replog.leader_external import LeaderExternal
from replog.messages import Answer, Entries, SnapshotBytes
from replog.replica import Replica
from replog.serving import answer
from replog.trigger import CompactionSettings
from server.metadata.machine import MetadataMachine, encode_command
from storage.files.files import Buffer
from storage.files.local_files import LocalFile, LocalFileSystem

COPIES = 4
COMMANDS_AT_ONCE = 10
VALUE = "v" * 1000
COMPACTORS: dict[Placement, type[LogCompactor]] = {
    Placement.INDEPENDENT: Independent,
    Placement.LEADER_EXTERNAL: LeaderExternal,
    Placement.IN_LOG: InLog,
}


class State(enum.Enum):
    """What the commands do to the state."""

    FIXED = "fixed size"
    """They replace the values of the same keys."""
    GROWING = "growing"
    """Each creates a key."""
    GROWING_UNSIZED = "growing, size unknown"
    """The same, with the paper's simple trigger: the machine does not know its size."""


class UnsizedMachine(MetadataMachine):
    """A machine that does not know how large its snapshot would be."""

    __slots__ = ()

    def size_bytes(self) -> None:  # type: ignore[override]
        """Returns None."""
        return


class CountedFile(LocalFile):
    """A file whose bytes are counted, and left to the system."""

    __slots__ = ("_written",)

    def __init__(self, file: LocalFile, written: Counter[str]) -> None:
        super().__init__(file.path, file.fileno(), file.size)
        self._written = written

    def append(self, parts: Sequence[Buffer]) -> int:
        kind = "snapshot" if self.path.endswith(PART) else "log"
        self._written[kind] += sum(map(len, parts))
        return super().append(parts)

    def sync(self) -> None:
        pass


class CountedFileSystem(LocalFileSystem):
    """Counts the bytes that are appended to logs and to snapshots."""

    __slots__ = ("written",)

    def __init__(self) -> None:
        self.written: Counter[str] = Counter()

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        return CountedFile(super().open(path, create=create), self.written)

    def sync_directory(self, path: str) -> None:
        pass


class Copy:
    """One copy of the state machine, with its own directory."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster = cluster
        self.files = CountedFileSystem()
        self.directory = str(cluster.folder / str(number))
        self.files.make_directory(self.directory)
        self.peak_bytes = 0
        self.start()

    def start(self) -> None:
        """Recover, and follow."""
        cluster = self.cluster
        self.replica = Replica(
            self.files,
            self.directory,
            cluster.new_machine(),
            clock_ms=lambda: 0.0,
            segment_bytes=cluster.settings.segment_bytes,
        )
        self.compactor = COMPACTORS[cluster.placement](self.replica, cluster.settings)
        self.replica.open()
        self.compactor.opened()
        self.follow()

    def follow(self) -> None:
        self.replica.follow()
        self.follower = Follower(self.replica, self.compactor, self.cluster.new_machine)

    def lead(self, term: int) -> None:
        self.follower.stop()
        self.replica.lead(term)

    def compact(self) -> None:
        """Begin a snapshot if one is due; write one part of the one that has begun."""
        compactor = self.compactor
        if compactor.due() is not None:
            compactor.begin()
        elif compactor.is_snapshotting and not compactor.step():
            compactor.finish()

    def check(self) -> None:
        """Compare the files with the bound."""
        names = self.files.list(self.directory)
        size = sum(self.files.size(f"{self.directory}/{name}") for name in names)
        self.peak_bytes = max(self.peak_bytes, size)
        self.cluster.checks += 1
        self.cluster.violations += size > self.compactor.bound_bytes()


class Cluster:
    """The copies, their client, and the network between them."""

    def __init__(
        self, folder: Path, placement: Placement, state: State, *, u: float, crashes: float
    ) -> None:
        """Create empty copies.

        Args:
            crashes: the share of the snapshots during which the leader crashes.
        """
        # Constant after construction
        self.folder = folder
        self.placement = placement
        self.state = state
        self.crashes = crashes
        unsized = state is State.GROWING_UNSIZED
        self.new_machine = UnsizedMachine if unsized else MetadataMachine
        self.settings = CompactionSettings(
            u=u, replay_ms=1e12, age_ms=1e12, catchup_entries=0, segment_bytes=64 << 10
        )
        # State
        self.random = Random(1)
        self.term = 1
        self.sent = Counter[str]()
        self.client_bytes = self.commands = self.crashed = self.snapshots = 0
        self.snapshot_share = self.snapshot_share_max = 0.0
        """The bytes that a copy has written to snapshots for a byte of the client: after the last
        snapshot, and after the one for which they were the most."""
        self.checks = self.violations = 0
        self._crash_at: int | None = None
        self.copies = [Copy(self, number) for number in range(COPIES)]
        self.leader = self.copies[0]
        self.leader.lead(self.term)

    def run(self, client_bytes: int, keys: int) -> None:
        """Write so many bytes, to so many keys if the size is fixed."""
        while self.client_bytes < client_bytes:
            self.write(keys)
            self.replicate()
            was_snapshotting = self.leader.compactor.is_snapshotting
            for copy in self.copies:
                before = copy.replica.snapshot
                copy.compact()
                copy.check()
                if copy.replica.snapshot != before and copy is self.leader:
                    self.note_snapshot()
            if self.leader.compactor.is_snapshotting:
                self.maybe_crash(is_new=not was_snapshotting)

    def note_snapshot(self) -> None:
        """Note that the leader has completed a snapshot."""
        self.snapshots += 1
        self.snapshot_share = self.snapshot_bytes / self.client_bytes
        self.snapshot_share_max = max(self.snapshot_share_max, self.snapshot_share)

    def write(self, keys: int) -> None:
        """Append some commands at the leader."""
        first = self.commands
        self.commands += COMMANDS_AT_ONCE
        contents = [
            (Kind.COMMAND, encode_command([["put", self.key(number, keys), VALUE, 0]]))
            for number in range(first, self.commands)
        ]
        frame = self.leader.replica.append(contents)
        self.leader.replica.apply_confirmed()
        self.client_bytes += sum(map(len, encode_frame(frame)))

    def key(self, number: int, keys: int) -> str:
        return f"/{self.random.randrange(keys) if self.state is State.FIXED else number:09d}"

    def replicate(self) -> None:
        """Bring every follower to the leader's end."""
        leader = self.leader.replica
        for copy in self.copies:
            while copy is not self.leader and copy.replica.confirmed_end < leader.log.end:
                found = answer(leader, copy.follower.request())
                self.count(found)
                copy.follower.receive(found)

    def count(self, found: Answer) -> None:
        if isinstance(found, Entries):
            for frame in found.frames:
                self.sent["entries"] += sum(map(len, encode_frame(frame)))
        elif isinstance(found, SnapshotBytes):
            self.sent["snapshots"] += len(found.data)

    def maybe_crash(self, *, is_new: bool) -> None:
        """Crash the leader in the middle of some of its snapshots."""
        if is_new:
            steps = self.random.randrange(1, 5)
            self._crash_at = steps if self.random.random() < self.crashes else None
        elif self._crash_at is not None:
            self._crash_at -= 1
            if not self._crash_at:
                self._crash_at = None
                self.crash()

    def crash(self) -> None:
        """End the leader's process; the next copy leads, the old leader follows."""
        self.crashed += 1
        self.replicate()
        old = self.leader
        old.replica.close()
        self.term += 1
        self.leader = self.copies[(self.copies.index(old) + 1) % COPIES]
        if self.placement is not Placement.INDEPENDENT:
            self.leader.compactor.abandon()
        self.leader.lead(self.term)
        old.start()

    @property
    def snapshot_bytes(self) -> float:
        """The bytes that an average copy has written to snapshots."""
        files = sum(copy.files.written["snapshot"] for copy in self.copies) / COPIES
        return files + self.chunk_bytes

    @property
    def chunk_bytes(self) -> float:
        """The bytes of an average log that are not the client's."""
        logs = sum(copy.files.written["log"] for copy in self.copies) / COPIES
        return logs - self.client_bytes if self.placement is Placement.IN_LOG else 0.0

    @property
    def disk_bytes(self) -> int:
        """The bytes that all copies have written."""
        return sum(copy.files.written.total() for copy in self.copies)

    def close(self) -> None:
        for copy in self.copies:
            copy.replica.close()
        shutil.rmtree(self.folder)
