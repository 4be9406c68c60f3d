"""The topics of the metadata store against the logs in their data directory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from server.metadata_files import content_of, read_metadata
from server.topic_keys import CREATING, DELETED, TOPICS, UNSETTLED, first_unsettled
from server.topic_names import parse_id
from storage.errors import StorageError
from storage.files import FileSystem
from storage.findings import Check, Finding, Findings
from storage.meta_properties import read_meta_properties
from storage.paths import join, parse_topic_directory, topic_directory, topic_id_text
from storage.verify import Found


def verify_topics(files: FileSystem, found: Found) -> tuple[Finding, ...]:
    """Say which logs are gone, and which belong to no topic.

    Only of a data directory that holds the metadata; files that cannot be read are left to
    `verify_metadata`.
    """
    findings = Findings()
    try:
        meta = read_meta_properties(files, found.path)
        if found.metadata is None or meta is None:
            return ()
        content = content_of(read_metadata(files, found.metadata))
    except StorageError:
        return ()
    expected = set(_log_paths(content, found.path, meta.directory_id))
    for path in sorted(expected):
        if not files.exists(path) and not _may_be_missing(path, content):
            text = "the metadata store has a topic with this log, and it is gone"
            findings.error(Check.METADATA, path, text)
    for log in found.logs:
        is_known = log.directory in expected or _is_deleted(log.directory, content)
        is_known = is_known or _is_unborn(log.directory, content)
        if not is_known and files.exists(log.directory):
            text = "no topic of the metadata store has this log"
            findings.warn(Check.METADATA, log.directory, text)
    return findings.all()


def _log_paths(content: Mapping[str, str], data_directory: str, directory_id: str) -> Iterator[str]:
    """The directories of the logs that topics have in this data directory."""
    for key, value in content.items():
        if key.startswith(TOPICS):
            topic = json.loads(value)
            name = topic_directory(key.removeprefix(TOPICS), parse_id(topic["id"]))
            for partition, holder in enumerate(topic["partitions"]):
                if holder == directory_id:
                    yield join(join(data_directory, name), str(partition))


def _is_unborn(path: str, content: Mapping[str, str]) -> bool:
    """Whether a log is being created, or is what an attempt to do so has left."""
    first = _mark(CREATING, path, content)
    return first is not None and int(path.rpartition("/")[2]) >= int(first or 0)


def _may_be_missing(path: str, content: Mapping[str, str]) -> bool:
    """Whether the next start makes a log anew if it is not there."""
    topic_id = parse_topic_directory(path.rpartition("/")[0].rpartition("/")[2])
    if topic_id is None:
        return False
    firsts = first_unsettled(key for key in content if key.startswith(UNSETTLED))
    first = firsts.get(topic_id_text(topic_id))
    is_unsettled = first is not None and int(path.rpartition("/")[2]) >= first
    return is_unsettled or _is_unborn(path, content)


def _is_deleted(path: str, content: Mapping[str, str]) -> bool:
    """Whether a log's topic is being deleted."""
    return _mark(DELETED, path, content) is not None


def _mark(mark: str, path: str, content: Mapping[str, str]) -> str | None:
    """What the store says beside a mark of a log's topic; None if it has no such mark."""
    topic_id = parse_topic_directory(path.rpartition("/")[0].rpartition("/")[2])
    return None if topic_id is None else content.get(mark + topic_id_text(topic_id))
