"""Opens the log directories of a broker, and reads the cluster id from them."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import uuid
from collections.abc import Iterable
from typing import NamedTuple

from server.config.config import BrokerConfig
from server.metadata.node import Node
from server.runtime.clock import Clock
from storage.files.errors import DamagedFile, DiskError, ForeignDirectory, StorageError
from storage.files.files import FileSystem
from storage.files.paths import topic_id_text
from storage.formats.meta_properties import MetaProperties, read_meta_properties
from storage.log.directory import LogDirectory
from storage.recovery.progress import RecoveryProgress
from storage.segment.files import Background

_log = logging.getLogger("server.durability.directories")


class OpenedDirectories(NamedTuple):
    """The open log directories, the paths that could not be opened, and the node that owns them."""

    directories: tuple[LogDirectory, ...]
    left_out: tuple[str, ...]
    """The paths of the directories that are offline until the next start."""
    node: Node


def open_directories(
    config: BrokerConfig,
    *,
    files: FileSystem,
    background: Background,
    clock: Clock,
    progress: RecoveryProgress,
) -> OpenedDirectories:
    """Lock and open every directory of `log.dirs`.

    A directory whose disk fails, or that has a damaged file of its own, is left out, unless it holds
    the metadata.

    Raises:
        StorageError: a directory is locked, belongs to another broker or is from a later release, or
            the metadata directory failed. No directory stays open.
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
    """Returns the path of some topic's directory, even of an unknown topic; None if there is none.

    Raises:
        DiskError: a disk failed.
    """
    return next((found for each in directories if (found := each.any_topic())), None)


def keep_reserves(directories: Iterable[LogDirectory]) -> None:
    """Reserve disk space for the next start, in each directory that has some left."""
    for directory in directories:
        directory.keep_reserve()


def abandon(directory: LogDirectory, reason: str) -> None:
    """Close a directory without marking a clean shutdown: the next start recovers its logs."""
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
    """Returns the configured cluster id, else that of the first directory with one, else a new one."""
    if config.cluster_id:
        return config.cluster_id
    for path in config.data_directories:
        # Opening an unreadable directory later leaves it out or fails the start.
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
            raise ForeignDirectory(
                f"{directory.path} is a copy of {other} (both have the same id): remove one of them"
                " from log.dirs"
            )
