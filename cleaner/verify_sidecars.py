"""Whether a log's key sidecars say what their segments hold: each is made anew, and compared.

A sidecar that is damaged, or not of its segment, costs nothing but that it is made anew: it is only
noted. One that is sound, and says what is not so, would let the cleaner drop what must stay: an error.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from cleaner.kernel import KeyIndexer
from protocol.errors import ProtocolError
from storage.errors import DamagedFile, DamagedSidecar, DiskError, FormatFromTheFuture, MissingFile
from storage.files import File, FileSystem
from storage.findings import Check, Finding, Findings
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
    findings = Findings()
    try:
        path = join(identity.directory, MANIFEST)
        rows = decode(fs.read_bytes(path), path).segments
    except (DiskError, DamagedFile, FormatFromTheFuture):
        return ()
    for row in rows[:-1]:
        # A directory in use: what is gone meanwhile has nothing to say.
        with suppress(DiskError):
            _Comparison(fs, identity, row, findings, progress).run()
    return findings.all()


class _Comparison:
    """One segment and its sidecar."""

    def __init__(
        self,
        fs: FileSystem,
        identity: LogIdentity,
        row: SegmentRow,
        findings: Findings,
        progress: Callable[[int], None],
    ) -> None:
        self._fs = fs
        self._row = row
        self._hash_key = identity.hash_key
        self._findings = findings
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

    def run(self) -> None:
        """Say whether they agree. Raises DiskError."""
        try:
            sidecar = self._open()
            file = self._fs.open(self._log_path)
        except MissingFile:
            return
        except DamagedSidecar as error:
            self._note(error)
            return
        try:
            self._compare(sidecar, file)
        except DamagedSidecar as error:
            self._note(error)
        except ProtocolError:
            # The segment is damaged, so that it cannot be told what its sidecar should say.
            return
        finally:
            file.close()

    def _open(self) -> KeySidecar:
        if self._hash_key:
            return KeySidecar.open(self._fs, self._path, self._row, self._hash_key)
        return KeySidecar.open_of(self._fs, self._path, self._row)

    def _compare(self, sidecar: KeySidecar, file: File) -> None:
        for block in sidecar.blocks():
            data = file.read_at(block.position, block.data_bytes)
            self._progress(len(data))
            made = self._indexer.feed(data, position=block.position).block
            if made is None or not self._is_same(block, made):
                text = f"it does not say what its segment holds from byte {block.position} on"
                self._findings.error(Check.SIDECAR, self._path, text)
                return
        if _counted(self._indexer.totals) != _counted(sidecar.totals):
            text = f"its totals are {sidecar.totals}, its segment's {self._indexer.totals}"
            self._findings.error(Check.SIDECAR, self._path, text)

    def _is_same(self, block: KeyBlock, made: bytes) -> bool:
        if self._hash_key:
            return block.data == made
        return _without_hashes(block, block.data) == _without_hashes(block, made)

    def _note(self, error: DamagedSidecar) -> None:
        text = f"{error.reason}; it is made anew from its segment"
        self._findings.note(Check.SIDECAR, self._path, text)


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
