"""Whether a log's key sidecars say what their segments hold: each is made anew, and compared.

A sidecar that is damaged, or not of its segment, costs nothing but that it is made anew: it is only
noted. One that is sound, and says what is not so, would let the cleaner drop what must stay: an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from cleaner.kernel import KeyIndexer
from protocol.errors import ProtocolError
from storage.errors import DamagedFile, DamagedSidecar, DiskError, FormatFromTheFuture, MissingFile
from storage.files import FileSystem
from storage.findings import Check, Finding, Severity
from storage.key_sidecar import ENTRY, KeyBlock, KeySidecar
from storage.key_totals import KeyTotals
from storage.log_directory import HASH_KEY_BYTES
from storage.log_identity import LogIdentity
from storage.manifest import SegmentRow, decode
from storage.paths import KEYS, LOG, MANIFEST, join, segment_file
from storage.verify_segment import DECOMPRESSED_BYTES_MAX

HASH_BYTES = 16


def verify_sidecars(
    fs: FileSystem, identity: LogIdentity, *, progress: Callable[[int], None] = lambda count: None
) -> tuple[Finding, ...]:
    """Compare the key sidecars of a log's sealed segments with these.

    With an empty `identity.hash_key`, all but the hashes is compared. What else is wrong with the
    log's files is for `storage.verify_log` to say.

    Args:
        progress: gets the bytes of segments as they are read.
    """
    found = []
    for row in _sealed_rows(fs, identity):
        # A directory in use: what is gone meanwhile has nothing to say, nor has what was cut.
        with suppress(DiskError):
            finding = _Comparison(fs, identity, row, progress).run()
            if finding is not None and row in _sealed_rows(fs, identity):
                found.append(finding)
    return tuple(found)


def _sealed_rows(fs: FileSystem, identity: LogIdentity) -> Sequence[SegmentRow]:
    try:
        path = join(identity.directory, MANIFEST)
        return decode(fs.read_bytes(path), path).segments[:-1]
    except (DiskError, DamagedFile, FormatFromTheFuture):
        return ()


class _Comparison:
    """One segment and its sidecar."""

    def __init__(
        self,
        fs: FileSystem,
        identity: LogIdentity,
        row: SegmentRow,
        progress: Callable[[int], None],
    ) -> None:
        self._fs = fs
        self._row = row
        self._hash_key = identity.hash_key
        self._progress = progress
        self._log_path, self._path = (
            join(identity.directory, segment_file(row.base_offset, row.file_version, kind))
            for kind in (LOG, KEYS)
        )
        self._indexer = KeyIndexer(
            identity.hash_key or bytes(HASH_KEY_BYTES),
            base_offset=row.base_offset,
            decompressed_bytes_max=DECOMPRESSED_BYTES_MAX,
        )

    def run(self) -> Finding | None:
        """What there is to say of the sidecar, if anything. Raises DiskError."""
        try:
            lie = self._lie_of(self._open())
        except DamagedSidecar as error:
            return self._finding(Severity.NOTE, f"{error.reason}; it is made anew from its segment")
        except (MissingFile, ProtocolError):
            # No sidecar, or a segment so damaged that nobody knows what its sidecar should say.
            return None
        return None if lie is None else self._finding(Severity.ERROR, lie)

    def _open(self) -> KeySidecar:
        if self._hash_key:
            return KeySidecar.open(self._fs, self._path, self._row, self._hash_key)
        return KeySidecar.open_of(self._fs, self._path, self._row)

    def _lie_of(self, sidecar: KeySidecar) -> str | None:
        file = self._fs.open(self._log_path)
        try:
            for block in sidecar.blocks():
                data = file.read_at(block.position, block.data_bytes)
                self._progress(len(data))
                made = self._indexer.feed(data, position=block.position).block
                if made is None or not self._is_same(block, made):
                    return f"it does not say what its segment holds from byte {block.position} on"
        finally:
            file.close()
        if _counted(self._indexer.totals) != _counted(sidecar.totals):
            return f"its totals are {sidecar.totals}, its segment's {self._indexer.totals}"
        return None

    def _is_same(self, block: KeyBlock, made: bytes) -> bool:
        if self._hash_key:
            return block.data == made
        return _without_hashes(block, block.data) == _without_hashes(block, made)

    def _finding(self, severity: Severity, text: str) -> Finding:
        return Finding(severity=severity, check=Check.SIDECAR, path=self._path, text=text)


def _counted(totals: KeyTotals) -> KeyTotals:
    """The totals without the number of blocks, which the segment does not determine."""
    return replace(totals, blocks=0)


def _without_hashes(block: KeyBlock, data: bytes | memoryview) -> bytes:
    """A block's bytes but for its hashes and its checksum, which is of them too."""
    entries = bytearray(data[block.entries_at : -8])
    zeros = bytes(len(entries) // ENTRY.size)
    for at in range(HASH_BYTES):
        entries[at :: ENTRY.size] = zeros
    return bytes(data[: block.entries_at]) + entries
