"""Keeps the rows of a frame while it is used several times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame


@contextmanager
def persisted(frame: DataFrame) -> Iterator[DataFrame]:
    """Keep the rows of a frame within this context; they are computed at its first use."""
    frame.persist()
    try:
        yield frame
    finally:
        frame.unpersist()
