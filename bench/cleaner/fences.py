"""What a pass costs over a log with a damaged segment, which it cleans around, beside the sound log.

A byte in the middle of the segment is wrong, so each pass reads half of the segment. What lies above it
stays dirty, so the next pass maps its keys again.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.base.figure import Figure
from bench.cleaner.keyed_log import Cleaned, keyed_log, pass_figures
from storage.files.paths import LOG


def fence_figures(pairs: int) -> list[Figure]:
    """Measure a first pass over four million records, and the pass after 200,000 more."""
    with keyed_log() as sound:
        damaged = sound.with_name("damaged")
        shutil.copytree(sound, damaged)
        _damage_one_in_the_middle(damaged)
        return pass_figures(
            "with a damaged segment",
            Cleaned(damaged),
            Cleaned(sound),
            limit_is="the same pass over the sound log",
            pairs=pairs,
        )


def _damage_one_in_the_middle(directory: Path) -> None:
    files = sorted(each for each in directory.iterdir() if each.name.endswith(LOG))
    files = [each for each in files if each.stat().st_size]
    path = files[len(files) // 2]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x55
    path.write_bytes(data)
