"""A leader's checkpoint on its way into a copy: received in pieces, verified whole, then handed over.

    <partition>.checkpoint.download    what has been received so far
    <partition>.checkpoint.install     whole, verified and synced; the copy is about to take it

A break leaves the first, and the download continues at its end: the header in it says which checkpoint
it is. Bytes that a power cut has torn are found by the verification, and the download begins again.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from cleaner.checkpoints.reading import CheckpointReader
from cleaner.kernel.live_records import RecordSum
from protocol.wire.errors import ProtocolError
from replog.entry import SnapshotId
from storage.batches.validate import DECOMPRESSED_BYTES_MAX
from storage.files.errors import DamagedFile, FormatFromTheFuture
from storage.files.files import Buffer, File, FileSystem, unlink_if_there
from storage.files.paths import DOWNLOAD, INSTALL, checkpoint_path
from storage.formats.coordinator_checkpoint import HEADER_BYTES, CheckpointHeader, decode_header
from storage.formats.log_identity import LogIdentity

_log = logging.getLogger("server.standby")


class CheckpointDownload:
    """The download for one copy. One thread at a time."""

    __slots__ = ("_file", "_fs", "_identity", "_path", "snapshot")

    def __init__(self, fs: FileSystem, identity: LogIdentity) -> None:
        """Look for what an earlier process has received. Raises DiskError."""
        # Constant after construction
        self._fs = fs
        self._identity = identity
        self._path = checkpoint_path(identity.directory) + DOWNLOAD
        # State
        self._file: File | None = None
        self.snapshot: SnapshotId | None = None
        """What is received; None if nothing is."""
        if fs.exists(self._path):
            self._continue()

    @property
    def position(self) -> int:
        """How many bytes are here."""
        return 0 if self._file is None else self._file.size

    def add(self, snapshot: SnapshotId, position: int, data: Buffer) -> None:
        """Append bytes of a checkpoint. Those of another one replace it, if they are its first.

        Bytes from another position than the next one are late or repeated, and change nothing.

        Raises:
            DiskError: the disk failed.
        """
        if snapshot != self.snapshot:
            if position:
                return
            self.drop()
            self._file = self._fs.open(self._path, create=True)
            self.snapshot = snapshot
        if self._file is None or position != self._file.size:
            return
        self._file.append((data,))

    def finish(self) -> CheckpointHeader | None:
        """Verify what was received, and let the copy take it, durably.

        Returns its header; None if it is not what it should be: then it is gone.

        Raises:
            DiskError: the disk failed.
        """
        file, snapshot = self._file, self.snapshot
        assert file is not None
        assert snapshot is not None
        file.sync()
        file.close()
        self._file = None
        try:
            header = self._verified(snapshot)
        except (DamagedFile, FormatFromTheFuture, ProtocolError) as error:
            _log.warning("a downloaded checkpoint is not usable, it is downloaded again: %s", error)
            self.drop()
            return None
        self.snapshot = None
        self._fs.rename(self._path, checkpoint_path(self._identity.directory) + INSTALL)
        self._fs.sync_directory(self._path.rpartition("/")[0])
        return header

    def drop(self) -> None:
        """Remove what was received."""
        self.close()
        self.snapshot = None
        unlink_if_there(self._fs, self._path)

    def close(self) -> None:
        """Close the file; another process may continue."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _continue(self) -> None:
        self._file = self._fs.open(self._path)
        with suppress(DamagedFile, FormatFromTheFuture):
            header = decode_header(self._file.read_at(0, HEADER_BYTES), self._path)
            self.snapshot = SnapshotId(header.end_offset, header.last_epoch)
        if self.snapshot is None:
            self.drop()

    def _verified(self, snapshot: SnapshotId) -> CheckpointHeader:
        """Read all of it. Raises DamagedFile, FormatFromTheFuture, ProtocolError."""
        records = RecordSum(decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
        with CheckpointReader(self._fs, self._path) as reader:
            header = reader.header
            for piece in reader.pieces():
                records.feed(piece)
            found = (records.records, records.digest)
            if found != (reader.footer.records, reader.footer.digest):
                raise DamagedFile(self._path, "the digest of its records differs")
        place = (header.topic_id, header.partition)
        if place != (self._identity.topic_id, self._identity.topic_partition.partition):
            raise DamagedFile(self._path, "it belongs to another topic or partition")
        if SnapshotId(header.end_offset, header.last_epoch) != snapshot:
            raise DamagedFile(self._path, f"it ends at {header.end_offset}, not as {snapshot}")
        return header
