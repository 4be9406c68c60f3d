"""A coordinator's log, and a standby's copy of it on another disk, without a network between them."""

from __future__ import annotations

from random import Random

from cleaner.checkpoints.reading import CheckpointReader
from cleaner.checkpoints.validity import objection, place_in
from cleaner.kernel.live_records import RecordSum
from protocol.wire.error_codes import ErrorCode
from replog.entry import SnapshotId
from server.coordination.checkpoints import TopicCheckpoints
from server.coordination.state_loading import feed_log
from server.coordination.transactions.loading import TransactionScan
from server.standby.partition_copy import PartitionCopy
from storage.files.files import FileSystem
from storage.files.paths import checkpoint_path
from storage.formats.coordinator_checkpoint import HEADER_BYTES, decode_header
from storage.log.log import PartitionLog
from storage.segment.reader import Isolation
from tests.harness.checkpointed_log import (
    INFLATED_BYTES_MAX,
    PATH,
    CheckpointedLog,
    State,
    new_scan,
    state_of,
)
from tests.harness.compacted_log import identity
from tests.harness.memory_fs import Loss, MemoryFileSystem

COPY_DIRECTORY = "copy/orders/0"
COPY_PATH = checkpoint_path(COPY_DIRECTORY)
FETCH_BYTES = 300
PIECE_BYTES = 100
ROUNDS_MAX = 10_000


def open_copy(fs: FileSystem, *, has_commits: bool = True) -> PartitionCopy:
    """Open the copy on a disk, as a start of the standby does."""
    return PartitionCopy(
        fs,
        identity(directory=COPY_DIRECTORY),
        TopicCheckpoints(has_commits=has_commits),
        now_ms=lambda: 0,
    )


class FollowedLog:
    """The leader's log and its copy; `step` is one request of the follower with its answer."""

    def __init__(self, *, has_commits: bool = True) -> None:
        """
        Args:
            has_commits: whether the log is one of `__consumer_offsets`, not of `__transaction_state`.
        """
        self.leader = CheckpointedLog()
        self.has_commits = has_commits
        self.disk = MemoryFileSystem()
        self.disk.make_directory("copy")
        self.disk.sync_directory("/")
        self.copy = open_copy(self.disk, has_commits=has_commits)

    def step(self) -> bool:
        """Fetch once, or download one piece. Returns whether there was anything to do."""
        if self.copy.wanted is not None:
            self.piece()
            return True
        return self.fetch()

    def fetch(self, max_bytes: int = FETCH_BYTES) -> bool:
        """Fetch from the copy's end. Returns whether the leader's log is longer."""
        copy, log = self.copy, self.leader.log
        read = log.reader.read(
            copy.end,
            max_bytes=max_bytes,
            whole_first_batch=True,
            isolation=Isolation.READ_UNCOMMITTED,
            last_fetched_epoch=copy.last_epoch,
        )
        if isinstance(read, ErrorCode) or read.diverging_epoch is not None:
            copy.want(f"the leader answers {read}")
            return True
        data = b"".join(region.read_bytes() for region in read.regions)
        read.release()
        copy.leader_starts_at(read.log_start_offset)
        if copy.wanted is not None:
            return True
        if data:
            copy.append(memoryview(data))
            copy.sync()
        else:
            copy.nothing_until(read.high_watermark)
        return bool(data) or copy.wanted is not None

    def piece(self, size_max: int = PIECE_BYTES) -> None:
        """Download the next piece of the checkpoint that the copy needs."""
        snapshot, position = self.copy.next_piece
        assert self.copy.wanted is not None
        data = self.leader.checkpoint
        if snapshot is not None and (data is None or snapshot_of(data) != snapshot):
            self.copy.drop_download()
            return
        if snapshot is None:
            data = self._newest(self.copy.wanted.end_min)
            if data is None:
                self.copy.ask_again()
                return
        assert data is not None
        part = data[position : position + size_max]
        self.copy.receive(snapshot_of(data), position, part, len(data))

    def _newest(self, end_min: int) -> bytes | None:
        """Returns the leader's checkpoint, which it makes unless it has one that ends late enough."""
        leader = self.leader
        data = leader.checkpoint
        if data is not None:
            header = decode_header(data[:HEADER_BYTES], PATH)
            counts = objection(header, place_in(leader.log, header.end_offset)) is None
            if counts and header.end_offset >= end_min:
                return data
        if leader.make(has_commits=self.has_commits) is None:
            return None
        data = leader.checkpoint
        assert data is not None
        return data if snapshot_of(data).end >= end_min else None

    def catch_up(self) -> None:
        """Follow until the copy has everything."""
        for _ in range(ROUNDS_MAX):
            if not self.step():
                return
        raise AssertionError(f"the copy never catches up: {self.copy.end}, {self.copy.wanted}")

    def values(self) -> dict[bytes, bytes]:
        """Returns the last value of each transactional id that the copy's files have."""
        scan, log = TransactionScan(), self.copy.log
        start = log.log_start_offset
        if self.disk.exists(COPY_PATH):
            with CheckpointReader(self.disk, COPY_PATH) as reader:
                for piece in reader.pieces():
                    scan.feed(piece)
                start = reader.header.end_offset
        feed_log(log, start, log.high_watermark, scan.feed)
        return scan.values

    def state(self) -> State:
        """Returns the state that the copy's files have."""
        return copy_state(self.disk, self.copy.log)

    def make_checkpoint(self) -> None:
        """Let the copy make a checkpoint of its own, and drop the log before it."""
        made = self.copy.make_checkpoint(self.copy.order())
        if made is not None:
            self.copy.made(made)

    def crash(self, loss: Loss = Loss.EVERYTHING, random: Random | None = None) -> None:
        """Let the standby's machine lose power, and start again."""
        self.disk = self.disk.after_crash(loss, random or Random(0))
        self.copy = open_copy(self.disk, has_commits=self.has_commits)

    def restart(self) -> None:
        """Stop the standby properly, and start it again."""
        self.copy.close()
        self.copy = open_copy(self.disk, has_commits=self.has_commits)


def snapshot_of(checkpoint: bytes) -> SnapshotId:
    """Returns how followers name a checkpoint."""
    header = decode_header(checkpoint[:HEADER_BYTES], PATH)
    return SnapshotId(header.end_offset, header.last_epoch)


def copy_state(fs: FileSystem, log: PartitionLog) -> State:
    """Returns the state that a checkpoint and the log after it have; both must be sound."""
    scan, start = new_scan(), log.log_start_offset
    path = checkpoint_path(log.directory)
    if fs.exists(path):
        with CheckpointReader(fs, path) as reader:
            records = RecordSum(decompressed_bytes_max=INFLATED_BYTES_MAX)
            for piece in reader.pieces():
                scan.feed(piece)
                records.feed(piece)
            assert records.digest == reader.footer.digest
            assert log.log_start_offset <= reader.header.end_offset <= log.high_watermark
            start = reader.header.end_offset
    else:
        assert start == 0, "a copy without a checkpoint has the whole log"
    scan.expect(start)
    after: int = start

    def feed(data: bytes) -> int:
        nonlocal after
        after = scan.feed(data)
        return after

    feed_log(log, start, log.high_watermark, feed)
    assert scan.is_gapless
    assert after == log.high_watermark
    return state_of(scan)
