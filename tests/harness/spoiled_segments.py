"""Sealed segments of a log in memory that are damaged, and can be repaired for the length of a look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from storage.files.paths import LOG, join, segment_file
from tests.harness.compacted_log import DIRECTORY, CompactedLog
from tests.harness.log_builder import headers_in

FIELDS = {"length": 8, "magic": 16, "checksum": 17, "attributes": 22, "count": 60, "records": 64}
"""Bytes of a batch that its checksum covers, or that are checked themselves."""

Name = tuple[int, int]
"""Base offset and file version."""


@dataclass(frozen=True, slots=True)
class Spoiled:
    """A damaged file, with its bytes."""

    path: str
    sound: bytes
    spoiled: bytes


class SpoiledSegments:
    """The damaged segments of one log, listed in the manifest or kept for an undo."""

    def __init__(self) -> None:
        self._spoiled: dict[str, Spoiled] = {}
        self._shows_sound = False
        self._kept: set[str] = set()
        """Paths of the segments that were kept for an undo at the last look."""

    def __bool__(self) -> bool:
        return bool(self._spoiled)

    def damage_one(self, log: CompactedLog, random: Random) -> None:
        """Flip bits of a byte of a batch in a segment, if one is left that is sound."""
        paths = [path for path in self._paths(log) if path not in self._spoiled]
        sound = {path: log.fs.read_bytes(path) for path in paths}
        full = [(path, headers) for path in paths if (headers := headers_in(sound[path]))]
        if not full:
            return
        path, headers = random.choice(full)
        number = random.randrange(len(headers))
        at = sum(each.size_bytes for each in headers[:number])
        at = min(at + random.choice(sorted(FIELDS.values())), len(sound[path]) - 1)
        changed = bytearray(sound[path])
        changed[at] ^= random.randint(1, 255)
        self._spoiled[path] = Spoiled(path, sound[path], bytes(changed))
        self._show(log, sound=False)

    def repair(self, log: CompactedLog) -> None:
        """Repair all damage for good."""
        self._show(log, sound=True)
        self._spoiled.clear()

    @contextmanager
    def repaired(self, log: CompactedLog) -> Iterator[None]:
        """Within the body no segment is damaged. It must change nothing of the log."""
        if self._shows_sound:
            yield
            return
        self._check_bytes(log)
        self._show(log, sound=True)
        try:
            yield
        finally:
            self._show(log, sound=False)

    def forget(self, log: CompactedLog, names: Iterable[Name]) -> None:
        """Forget the damage of segments that an undo has taken out of the log."""
        for name in names:
            self._spoiled.pop(path_of(name), None)

    def _check_bytes(self, log: CompactedLog) -> None:
        """A damaged segment goes with the log start or its undo, and no other way; until then no byte
        of it changes."""
        present = set(self._paths(log))
        for path, each in [*self._spoiled.items()]:
            if path in present:
                assert log.fs.read_bytes(path) == each.spoiled, "a damaged segment was changed"
                continue
            is_kept = each.path in self._kept
            base_offset = headers_in(each.sound)[0].base_offset
            below_start = base_offset < log.log.log_start_offset
            assert is_kept or below_start, f"{path}: a damaged segment was rewritten"
            del self._spoiled[path]
        self._kept = {path_of(name) for name in kept_names(log)}

    def _show(self, log: CompactedLog, *, sound: bool) -> None:
        self._shows_sound = sound
        for each in self._spoiled.values():
            if log.fs.exists(each.path):
                log.fs.overwrite(each.path, 0, each.sound if sound else each.spoiled)

    def _paths(self, log: CompactedLog) -> list[str]:
        sealed = log.log.segments[:-1]
        listed = [(each.base_offset, each.file_version) for each in sealed if each.size]
        return [path_of(name) for name in [*listed, *sorted(kept_names(log))]]


def kept_names(log: CompactedLog) -> set[Name]:
    """Returns the names of the segments that a log keeps for undos."""
    return {
        (row.base_offset, row.file_version) for each in log.log.passes_kept for row in each.sources
    }


def path_of(name: Name) -> str:
    return join(DIRECTORY, segment_file(*name, LOG))
