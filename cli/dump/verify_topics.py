"""Compares the topics of the metadata store with the logs in the data directory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from server.metadata.log import read_machine
from server.topics.keys import CREATING, DELETED, TOPICS, UNSETTLED, first_unsettled
from server.topics.names import parse_id
from storage.files.errors import StorageError
from storage.files.files import FileSystem
from storage.files.paths import join, parse_topic_directory, topic_directory, topic_id_text
from storage.formats.meta_properties import read_meta_properties
from storage.verify.findings import Check, Finding, Findings
from storage.verify.verify import Found


def verify_topics(files: FileSystem, found: Found) -> tuple[Finding, ...]:
    """Find logs that are missing and logs that belong to no topic.

    Checks only a data directory that holds the metadata. `verify_metadata` reports unreadable files.
    """
    findings = Findings()
    try:
        meta = read_meta_properties(files, found.path)
        if found.metadata is None or meta is None:
            return ()
        machine = read_machine(files, found.metadata)
    except StorageError:
        return ()
    content = {key: entry.value for key, entry in machine.entries.items()}
    expected = set(_log_paths(content, found.path, meta.directory_id))
    for path in sorted(expected):
        if not files.exists(path) and not _may_be_missing(path, content):
            text = "this log is missing: the metadata store has a topic with it"
            findings.error(Check.METADATA, path, text)
    for log in found.logs:
        is_known = log.directory in expected or _is_deleted(log.directory, content)
        is_known = is_known or _is_being_created(log.directory, content)
        if not is_known and files.exists(log.directory):
            text = "this log belongs to no topic of the metadata store"
            findings.warn(Check.METADATA, log.directory, text)
    return findings.all()


def _log_paths(content: Mapping[str, str], data_directory: str, directory_id: str) -> Iterator[str]:
    """Yield the paths of all logs that the metadata store has in this data directory."""
    for key, value in content.items():
        if key.startswith(TOPICS):
            topic = json.loads(value)
            name = topic_directory(key.removeprefix(TOPICS), parse_id(topic["id"]))
            for partition, holder in enumerate(topic["partitions"]):
                if holder == directory_id:
                    yield join(join(data_directory, name), str(partition))


def _is_being_created(path: str, content: Mapping[str, str]) -> bool:
    """Returns whether a log is being created, or is left over from an attempt to create it."""
    first = _mark(CREATING, path, content)
    return first is not None and int(path.rpartition("/")[2]) >= int(first or 0)


def _may_be_missing(path: str, content: Mapping[str, str]) -> bool:
    """Returns whether the next start creates the log if it is missing."""
    topic_id = parse_topic_directory(path.rpartition("/")[0].rpartition("/")[2])
    if topic_id is None:
        return False
    firsts = first_unsettled(key for key in content if key.startswith(UNSETTLED))
    first = firsts.get(topic_id_text(topic_id))
    is_unsettled = first is not None and int(path.rpartition("/")[2]) >= first
    return is_unsettled or _is_being_created(path, content)


def _is_deleted(path: str, content: Mapping[str, str]) -> bool:
    """Returns whether the topic of a log is being deleted."""
    return _mark(DELETED, path, content) is not None


def _mark(mark: str, path: str, content: Mapping[str, str]) -> str | None:
    """Returns the value of a mark of the log's topic in the store; None without such a mark."""
    topic_id = parse_topic_directory(path.rpartition("/")[0].rpartition("/")[2])
    return None if topic_id is None else content.get(mark + topic_id_text(topic_id))
