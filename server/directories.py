"""Opens the log directories of a broker, and finds out from them which cluster it belongs to."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import uuid
from collections.abc import Iterable
from typing import NamedTuple

from server.clock import Clock
from server.config import BrokerConfig
from server.node import Node
from storage.errors import DamagedFile, DiskError, ForeignDirectory, StorageError
from storage.files import FileSystem
from storage.log_directory import LogDirectory
from storage.meta_properties import MetaProperties, read_meta_properties
from storage.paths import topic_id_text
from storage.recovery_progress import RecoveryProgress
from storage.segment_files import Background

_log = logging.getLogger("server.directories")


class OpenedDirectories(NamedTuple):
    """What there is of `log.dirs`, and whose it is."""

    directories: tuple[LogDirectory, ...]
    left_out: tuple[str, ...]
    """The paths of those that are out of service until the next start."""
    node: Node


def open_directories(
    config: BrokerConfig,
    *,
    files: FileSystem,
    background: Background,
    clock: Clock,
    progress: RecoveryProgress,
) -> OpenedDirectories:
    """Lock and open every directory of `log.dirs`; none stays open if one must not be.

    A directory whose disk fails, or with a damaged file of its own, is left out, unless it holds
    the metadata.

    Raises:
        StorageError: a directory is locked, of somebody else or from a later release; or the one
            with the metadata fails.
    """
    node = Node(node_id=config.node_id, cluster_id=_cluster_id(config, files))
    opened: list[LogDirectory] = []
    left_out: list[str] = []
    try:
        for path in config.data_directories:
            try:
                opened.append(_open(path, node, config, files, background, clock, progress))
            except (DiskError, DamagedFile) as error:
                if path == config.metadata_directory:
                    raise
                _log.error("log directory %s is offline: %s", path, error)
                left_out.append(path)
        _refuse_copies(opened)
    except StorageError:
        for directory in opened:
            abandon(directory, "the start failed")
        raise
    return OpenedDirectories(tuple(opened), tuple(left_out), node)


def any_topic_in(directories: Iterable[LogDirectory]) -> str | None:
    """The path of one topic's directory, whether anybody knows of it or not; None if there is none.

    Raises:
        DiskError: a disk failed.
    """
    return next((found for each in directories if (found := each.any_topic())), None)


def keep_reserves(directories: Iterable[LogDirectory]) -> None:
    """Set disk space aside for the next start, where there is some."""
    for directory in directories:
        directory.keep_reserve()


def abandon(directory: LogDirectory, reason: str) -> None:
    """Let go of a directory without a word of a clean stop: the next start recovers its logs."""
    directory.go_offline(reason)
    directory.close()


def _open(
    path: str,
    node: Node,
    config: BrokerConfig,
    files: FileSystem,
    background: Background,
    clock: Clock,
    progress: RecoveryProgress,
) -> LogDirectory:
    new_meta = MetaProperties(
        cluster_id=node.cluster_id, node_id=node.node_id, directory_id=topic_id_text(uuid.uuid4())
    )
    return LogDirectory(
        files,
        path,
        new_meta,
        background=background,
        now_ms=clock.now_ms,
        random_bytes=os.urandom,
        jitter=random.random,
        producer_expiration_ms=config.producer_id_expiration_ms,
        progress=progress,
    )


def _cluster_id(config: BrokerConfig, files: FileSystem) -> str:
    """The configured id, or that of the first directory that has one, or a new one."""
    if config.cluster_id:
        return config.cluster_id
    for path in config.data_directories:
        # Who cannot be read is left out, or refuses the start, when it is opened.
        with contextlib.suppress(DiskError, DamagedFile):
            found = read_meta_properties(files, path)
            if found is not None:
                return found.cluster_id
    return topic_id_text(uuid.uuid4())


def _refuse_copies(directories: list[LogDirectory]) -> None:
    by_id: dict[str, str] = {}
    for directory in directories:
        other = by_id.setdefault(directory.directory_id, directory.path)
        if other != directory.path:
            raise ForeignDirectory(f"{directory.path} is a copy of {other}: both have the same id")
