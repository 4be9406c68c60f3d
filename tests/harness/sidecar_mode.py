"""States of the key sidecars at the start of a pass; none of them may affect the result."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from random import Random

from storage.files.files import FileSystem
from storage.files.local_files import LocalFileSystem
from storage.files.paths import KEYS, join
from tests.harness.broker_process import BrokerProcess
from tests.harness.sidecar_lies import another_size, tell_somewhere

SHARE = 0.7
"""The share of the sidecars that are changed."""


class SidecarMode(enum.Enum):
    """What happens to the sidecars between two passes."""

    KEPT = "kept"
    OFF = "off"
    """`log.cleaner.key.sidecar.enable` is false: none stays between passes."""
    MISSING = "missing"
    """Some or all of them are removed."""
    DAMAGED = "damaged"
    """Bits are flipped, ends are cut or extended; one contains another segment's bytes, one is empty."""
    LYING = "lying"
    """One is valid but has a wrong record size. The pass that rewrites that record refuses to continue,
    and the next pass is correct; no earlier decision depends on the size."""

    def happen(self, fs: FileSystem, directory: str, random: Random) -> None:
        """Change the sidecars in a log's directory."""
        paths = [join(directory, name) for name in fs.list(directory) if name.endswith(KEYS)]
        if self is SidecarMode.MISSING:
            for path in _some(paths, random):
                fs.unlink(path)
        elif self is SidecarMode.DAMAGED:
            for path in _some(paths, random):
                damage(fs, path, random, others=paths)
        elif self is SidecarMode.LYING and paths:
            tell_somewhere(fs, random.choice(paths), random, another_size)


def befall_broker(broker: BrokerProcess, random: Random) -> None:
    """Choose, for a stopped broker, the state of its sidecars and whether it keeps any."""
    mode = random.choice(TRUTHFUL)
    broker.overrides["log.cleaner.key.sidecar.enable"] = str(mode is not SidecarMode.OFF).lower()
    for directory in broker.data_dir.glob("*/[0-9]*/"):
        mode.happen(LocalFileSystem(), str(directory), random)


def _some(paths: Iterable[str], random: Random) -> list[str]:
    is_all = random.random() < 0.2
    return [path for path in paths if is_all or random.random() < SHARE]


def damage(fs: FileSystem, path: str, random: Random, *, others: Iterable[str] = ()) -> None:
    """Damage a sidecar in a way that its checksums or its sizes reveal."""
    data = fs.read_bytes(path)
    found = [each for each in others if each != path]
    kinds: list[Callable[[bytes, Random], bytes]] = [_flipped, _flipped, _cut, _grown]
    if found and random.random() < 0.2:
        fs.write_bytes(path, fs.read_bytes(random.choice(found)))
    elif data:
        fs.write_bytes(path, random.choice(kinds)(data, random))


def _flipped(data: bytes, random: Random) -> bytes:
    flipped = bytearray(data)
    for _ in range(random.choice([1, 1, 8])):
        flipped[random.randrange(len(flipped))] ^= 1 << random.randrange(8)
    return bytes(flipped)


def _cut(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data))]


def _grown(data: bytes, random: Random) -> bytes:
    return data + random.randbytes(random.randint(1, 200))


TRUTHFUL = tuple(mode for mode in SidecarMode if mode is not SidecarMode.LYING)
"""The modes under which a pass succeeds at once."""
