"""Lets each pass over a log on the real disk fail, as long as a test wants."""

from __future__ import annotations

from pathlib import Path

from storage.files.paths import KEYS
from storage.log.log import PartitionLog


def block_sidecar(log: PartitionLog) -> None:
    """Let passes over the log fail: a directory has the name of its first segment's key sidecar."""
    Path(log.segments[0].path(KEYS)).mkdir()


def unblock_sidecar(log: PartitionLog) -> None:
    """Let passes over the log succeed again."""
    Path(log.segments[0].path(KEYS)).rmdir()
