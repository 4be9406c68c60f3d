"""Logs of several shapes, on which cleaning passes are measured."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.base.batches import keyed_batch
from bench.cleaner.cleaned_log import build_log

RECORDS_EACH_BATCH = 1000
TEMPLATES = 1000


class Shape(NamedTuple):
    """The records of a measured log."""

    label: str
    value_bytes: int
    records: int
    keys: int


SMALL = Shape("100 B values", 100, 10_000_000, 1_000_000)
LARGE = Shape("1 KB values", 1000, 1_000_000, 250_000)
MOSTLY_KEPT = Shape("1 KB values, most kept", 1000, 1_000_000, 2_000_000)
"""A pass over a topic of mostly different keys must write, and therefore verify, most of it."""


@contextmanager
def log_of(shape: Shape) -> Iterator[Path]:
    """Build a closed log of such records, in a folder with room for other files."""
    templates = [
        keyed_batch(
            records=RECORDS_EACH_BATCH, value_bytes=shape.value_bytes, keys=shape.keys, seed=seed
        )
        for seed in range(TEMPLATES)
    ]
    repeats = shape.records // RECORDS_EACH_BATCH // TEMPLATES
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "log"
        source.mkdir()
        build_log(source, itertools.chain.from_iterable([templates] * repeats))
        yield source
