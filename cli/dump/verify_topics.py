"""Compares the topics of the metadata stores with the logs in the data directory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from server.metadata.log import read_machine
from server.topics.keys import DELETED, PLACED, TOPICS, UNSETTLED, first_unsettled, placement
from server.topics.migration import CREATING
from server.topics.names import parse_id
from storage.files.errors import StorageError
from storage.files.files import FileSystem
from storage.files.paths import join, parse_topic_directory, topic_directory, topic_id_text
from storage.formats.meta_properties import read_meta_properties
from storage.verify.findings import Check, Finding, Findings
from storage.verify.verify import Found


@dataclass(frozen=True, slots=True)
class _Placed:
    """A topic's logs according to the metadata."""

    name: str
    id: str
    holders: Sequence[str]
    """The directory id of each partition."""
    count: int
    """The partitions that the cluster knows; the others are being added."""


def verify_topics(files: FileSystem, found: Found) -> tuple[Finding, ...]:
    """Find logs that are missing and logs that belong to no topic.

    Checks only a data directory that holds the metadata. `verify_metadata` reports unreadable files.
    """
    findings = Findings()
    try:
        meta = read_meta_properties(files, found.path)
        if found.metadata is None or meta is None:
            return ()
        content = _content(files, found.metadata)
        if found.node_metadata is not None:
            # An earlier release had everything in one store, with the same keys.
            content |= _content(files, found.node_metadata)
    except StorageError:
        return ()
    placed = list(_placements(content))
    expected = {
        path for each in placed for path in _paths(each, found.path, meta.directory_id, each.count)
    }
    for path in sorted(expected):
        if not files.exists(path) and not _may_be_missing(path, content):
            text = "this log is missing: the metadata store has a topic with it"
            findings.error(Check.METADATA, path, text)
    known = {path for each in placed for path in _paths(each, found.path, meta.directory_id)}
    for log in found.logs:
        is_known = log.directory in known or _is_deleted(log.directory, content)
        is_known = is_known or _is_being_created(log.directory, content)
        if not is_known and files.exists(log.directory):
            text = "this log belongs to no topic of the metadata store"
            findings.warn(Check.METADATA, log.directory, text)
    return findings.all()


def _content(files: FileSystem, directory: str) -> dict[str, str]:
    return {key: entry.value for key, entry in read_machine(files, directory).entries.items()}


def _placements(content: Mapping[str, str]) -> Iterator[_Placed]:
    """Yield the logs of all topics, and of those whose creation was not completed."""
    counts: dict[str, int] = {}
    for key, value in content.items():
        if key.startswith(TOPICS):
            topic = json.loads(value)
            partitions = topic["partitions"]
            if isinstance(partitions, list):
                yield _Placed(key.removeprefix(TOPICS), topic["id"], partitions, len(partitions))
            else:
                counts[topic["id"]] = partitions
    for key, value in content.items():
        if key.startswith(PLACED):
            topic_id = key.removeprefix(PLACED)
            name, holders = placement(value)
            yield _Placed(name, topic_id, holders, counts.get(topic_id, 0))


def _paths(
    placed: _Placed, data_directory: str, directory_id: str, count: int | None = None
) -> Iterator[str]:
    """Yield the paths of a topic's logs in a data directory, of the first `count` partitions."""
    name = topic_directory(placed.name, parse_id(placed.id))
    for partition, holder in enumerate(placed.holders[:count]):
        if holder == directory_id:
            yield join(join(data_directory, name), str(partition))


def _is_being_created(path: str, content: Mapping[str, str]) -> bool:
    """Returns whether an earlier release was creating a log, or has left it over from an attempt."""
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
