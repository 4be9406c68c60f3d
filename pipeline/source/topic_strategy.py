"""How the records of a topic are ranked, from the files of a data directory; without Spark."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator

from server.metadata.log import read_machine
from server.topics.keys import TOPICS
from storage.files.errors import DamagedSidecar, MissingFile
from storage.files.files import FileSystem
from storage.files.paths import KEYS
from storage.formats.compaction_strategy import STRATEGY, CompactionStrategy, strategy_from
from storage.formats.key_sidecar import KeySidecar
from storage.log.on_disk import LogOnDisk
from storage.segment.listed_file import listed_file


def sidecar_strategies(fs: FileSystem, log: LogOnDisk) -> Iterator[CompactionStrategy]:
    """Yields the strategies of a log's sound key sidecars; a live broker may remove one meanwhile."""
    for segment in log.segments:
        path = listed_file(fs, log.identity.directory, segment, KEYS)
        with contextlib.suppress(MissingFile, DamagedSidecar):
            sidecar = KeySidecar.open_any(fs, path)
            yield sidecar.header.strategy.by_rank()


def strategies_in(fs: FileSystem, logs: Iterable[LogOnDisk]) -> list[CompactionStrategy]:
    """Returns all strategies that the key sidecars of some logs have, in order of their names."""
    return sorted({each for log in logs for each in sidecar_strategies(fs, log)}, key=str)


def configured_strategy(
    fs: FileSystem, metadata_directory: str, topic: str
) -> CompactionStrategy | None:
    """Returns the strategy that a topic's own settings say; None if they do not say one.

    Args:
        metadata_directory: the cluster's metadata in a data directory.

    Raises:
        StorageError: the metadata is damaged.
        ValueError: the strategy is that of another release.
    """
    entry = read_machine(fs, metadata_directory).entries.get(TOPICS + topic)
    settings = json.loads(entry.value)["configs"] if entry is not None else {}
    return strategy_from(settings) if STRATEGY in settings else None
