"""What the cleaner finds of its key sidecars when a pass begins: none of it may make a difference."""

from __future__ import annotations

import enum
from random import Random

from storage.paths import KEYS, join
from tests.harness.memory_fs import MemoryFileSystem


class SidecarMode(enum.Enum):
    """What became of the sidecars since the last pass."""

    KEPT = "kept"
    OFF = "off"
    """`log.cleaner.key.sidecar.enable` is false: none stays between passes."""
    MISSING = "missing"
    """Somebody removed some of them."""
    DAMAGED = "damaged"
    """Some lost their end, or a bit of theirs flipped."""

    def happen(self, fs: MemoryFileSystem, directory: str, random: Random) -> None:
        """Do it to the sidecars in a log's directory."""
        if self not in (SidecarMode.MISSING, SidecarMode.DAMAGED):
            return
        paths = [join(directory, name) for name in fs.list(directory) if name.endswith(KEYS)]
        for path in paths:
            if self is SidecarMode.MISSING and random.random() < 0.7:
                fs.unlink(path)
            elif self is SidecarMode.DAMAGED and random.random() < 0.7:
                damage(fs, path, random)


def damage(fs: MemoryFileSystem, path: str, random: Random) -> None:
    """Flip a bit of a file, or cut it off."""
    data = bytearray(fs.read_bytes(path))
    if not data:
        return
    if random.random() < 0.3:
        del data[random.randrange(len(data)) :]
    else:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    fs.write_bytes(path, bytes(data))


ALL_MODES = tuple(SidecarMode)
