"""A cleaned segment of a stopped broker that is damaged on the disk, and repaired later."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from storage.files.local_files import ReadOnlyFileSystem
from storage.files.paths import LOG, MANIFEST
from storage.formats.manifest import SegmentRow, decode
from storage.segment.listed_file import listed_file


@dataclass(frozen=True, slots=True)
class DamagedSegment:
    """A damaged file, with its bytes and its offsets."""

    directory: Path
    row: SegmentRow
    sound: bytes
    spoiled: bytes

    def repair(self) -> None:
        """Put the sound bytes back. Nothing may have changed the damaged ones."""
        path = _path(self.directory, self.row)
        assert path.exists(), "a damaged segment was rewritten"
        assert path.read_bytes() == self.spoiled, "a damaged segment was changed"
        path.write_bytes(self.sound)


def damage_one(directory: Path, choices: random.Random) -> DamagedSegment | None:
    """Damage a byte in the later half of a segment that the cleaner wrote; None if there is none.

    The rest of a log that was not stopped cleanly would be cut off at damage that was never synced.
    """
    rows = decode((directory / MANIFEST).read_bytes(), MANIFEST).segments
    cleaned = [row for row in rows if row.is_cleaned and row.size]
    if not cleaned:
        return None
    row = choices.choice(cleaned)
    path = _path(directory, row)
    sound = path.read_bytes()
    at = choices.randrange(len(sound) // 2, len(sound))
    spoiled = sound[:at] + bytes([sound[at] ^ 0x55]) + sound[at + 1 :]
    path.write_bytes(spoiled)
    return DamagedSegment(directory, row, sound, spoiled)


def _path(directory: Path, row: SegmentRow) -> Path:
    return Path(listed_file(ReadOnlyFileSystem(), str(directory), row, LOG))
