"""Checks that a log's key sidecars match their segments: builds each one again and compares.

A damaged sidecar, or one of another file, is only a note: the cleaner detects and rebuilds it. A sidecar
with valid checksums and wrong content is an error: it could make the cleaner drop records that must
stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from cleaner.kernel.kernel import KeyIndexer
from protocol.wire.errors import ProtocolError
from storage.files.errors import (
    DamagedFile,
    DamagedSidecar,
    DiskError,
    FormatFromTheFuture,
    MissingFile,
)
from storage.files.files import FileSystem
from storage.files.paths import KEYS, LOG, MANIFEST, join
from storage.formats.key_sidecar import CHECKSUM_BYTES, ENTRY, KeyBlock, KeySidecar
from storage.formats.key_totals import KeyTotals
from storage.formats.log_identity import LogIdentity
from storage.formats.manifest import SegmentRow, decode
from storage.log.directory_start import HASH_KEY_BYTES
from storage.segment.listed_file import listed_file
from storage.verify.findings import Check, Finding, Severity
from storage.verify.segment import DECOMPRESSED_BYTES_MAX

HASH_BYTES = 16


def verify_sidecars(
    fs: FileSystem, identity: LogIdentity, *, progress: Callable[[int], None] = lambda count: None
) -> tuple[Finding, ...]:
    """Compare the key sidecars of a log's sealed segments with the segments.

    With an empty `identity.hash_key`, everything except the hashes is compared. `storage.verify.log`
    reports other problems of the log's files.

    Args:
        progress: called with the number of segment bytes of each read.
    """
    found = []
    for row in _sealed_rows(fs, identity):
        # The directory may be in use: ignore segments that were removed or replaced meanwhile.
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
            listed_file(fs, identity.directory, row, kind) for kind in (LOG, KEYS)
        )

    def run(self) -> Finding | None:
        """Returns the finding on the sidecar, if any. Raises DiskError."""
        try:
            mismatch = self._mismatch_of(self._open())
        except DamagedSidecar as error:
            return self._finding(Severity.NOTE, f"{error.reason}; the cleaner will rebuild it")
        except (MissingFile, ProtocolError):
            # No sidecar, or a damaged segment, from which no sidecar can be built to compare with.
            return None
        return None if mismatch is None else self._finding(Severity.ERROR, mismatch)

    def _open(self) -> KeySidecar:
        sidecar = KeySidecar.open_for_segment(self._fs, self._path, self._row)
        if self._hash_key:
            sidecar.check_hash_key(self._hash_key)
        return sidecar

    def _mismatch_of(self, sidecar: KeySidecar) -> str | None:
        indexer = KeyIndexer(
            self._hash_key or bytes(HASH_KEY_BYTES),
            base_offset=self._row.base_offset,
            decompressed_bytes_max=DECOMPRESSED_BYTES_MAX,
            strategy=sidecar.header.strategy,
        )
        file = self._fs.open(self._log_path)
        try:
            for block in sidecar.blocks():
                data = file.read_at(block.position, block.data_bytes)
                self._progress(len(data))
                made = indexer.feed(data, position=block.position).block
                if made is None or not self._is_same(block, made):
                    return f"it does not match its segment from byte {block.position} on"
        finally:
            file.close()
        if _without_block_count(indexer.totals) != _without_block_count(sidecar.totals):
            return f"its totals are {sidecar.totals}, those of its segment {indexer.totals}"
        return None

    def _is_same(self, block: KeyBlock, made: bytes) -> bool:
        if self._hash_key:
            return block.data == made
        return _without_hashes(block, block.data) == _without_hashes(block, made)

    def _finding(self, severity: Severity, text: str) -> Finding:
        return Finding(severity=severity, check=Check.SIDECAR, path=self._path, text=text)


def _without_block_count(totals: KeyTotals) -> KeyTotals:
    """Returns the totals without the number of blocks, which the segment does not determine."""
    return replace(totals, blocks=0)


def _without_hashes(block: KeyBlock, data: bytes | memoryview) -> bytes:
    """Returns a block's bytes without its hashes and its checksum, which covers the hashes."""
    entries = bytearray(data[block.entries_at : block.versions_at])
    zeros = bytes(len(entries) // ENTRY.size)
    for at in range(HASH_BYTES):
        entries[at :: ENTRY.size] = zeros
    return bytes(data[: block.entries_at]) + entries + data[block.versions_at : -CHECKSUM_BYTES]
