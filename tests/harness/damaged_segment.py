"""A cleaned segment of a stopped broker that is damaged on the disk, and repaired later."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from storage.files.paths import LOG, MANIFEST, segment_file
from storage.formats.manifest import decode


@dataclass(frozen=True, slots=True)
class DamagedSegment:
    """A damaged file, with its bytes and its offsets."""

    path: Path
    sound: bytes
    spoiled: bytes
    base_offset: int
    end_offset: int

    def repair(self) -> None:
        """Put the sound bytes back. Nothing may have changed the damaged ones."""
        assert self.path.exists(), "a damaged segment was rewritten"
        assert self.path.read_bytes() == self.spoiled, "a damaged segment was changed"
        self.path.write_bytes(self.sound)


def damage_one(directory: Path, choices: random.Random) -> DamagedSegment | None:
    """Damage a byte in the later half of a segment that the cleaner wrote; None if there is none.

    The rest of a log that was not stopped cleanly would be cut off at damage that was never synced.
    """
    rows = decode((directory / MANIFEST).read_bytes(), MANIFEST).segments
    cleaned = [row for row in rows if row.is_cleaned and row.size]
    if not cleaned:
        return None
    row = choices.choice(cleaned)
    path = directory / segment_file(row.base_offset, row.file_version, LOG)
    sound = path.read_bytes()
    at = choices.randrange(len(sound) // 2, len(sound))
    spoiled = sound[:at] + bytes([sound[at] ^ 0x55]) + sound[at + 1 :]
    path.write_bytes(spoiled)
    return DamagedSegment(path, sound, spoiled, row.base_offset, row.end_offset)
