"""Reconciles, at a start, the topics of the cluster with the logs that this node has of them.

The cluster's store says which topics exist, the node's store in which directories their logs are
(`keys.py`). A placement is written before a topic and removed after it:

    placement            topic or partition    then
    there                there                 open its log
    there, unsettled,    missing               its creation was cut short: remove what is left of it
    never written to
    there, otherwise     missing               it was acknowledged, so the cluster's store has lost it
                                               or is older than the node's: put it back
    missing              there                 the node's store is older or new: find the log in the
                                               directories; if none has it, the partition is offline

If that depends on a directory that is out of service, nothing is changed, and a later start decides.
"""

from __future__ import annotations

import enum
import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cleaner.rules.text import count_text
from server.metadata.store import Delete, Put
from server.topics.keys import (
    DELETED,
    NOT_KNOWN,
    PLACED,
    PUT_ASIDE,
    TOPICS,
    placed_json,
    topic_value,
)
from server.topics.names import collision_key
from server.topics.start import ClusterTopic, Placement, StoredTopics
from storage.files.errors import StorageError
from storage.files.paths import topic_id_text
from storage.log.directory import LogDirectory

_log = logging.getLogger("server.topics.topics")

KEEP_EVERYTHING = {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
"""The configuration of a topic whose own one is lost: nothing of the topic is ever removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicToOpen:
    """A topic, and where its logs are."""

    name: str
    id: uuid.UUID
    overrides: Mapping[str, str]
    holders: Sequence[str]
    """The id of each partition's directory, or `NOT_KNOWN`."""
    first_unsettled: int | None
    """From this partition on, a crash may have removed logs that were never written to."""


@dataclass(slots=True)
class Reconciled:
    """What to open, and what to write to the stores."""

    topics: list[TopicToOpen] = field(default_factory=list)
    cluster: list[Put | Delete] = field(default_factory=list)
    """Puts back what the cluster's store has lost."""
    node: list[Put | Delete] = field(default_factory=list)
    undecided: set[uuid.UUID] = field(default_factory=set)
    """Topics about which a later start decides; what the node's store says of them stays."""


class _Verdict(enum.Enum):
    """Whether the logs of a placement were acknowledged."""

    YES = enum.auto()
    NO = enum.auto()
    UNKNOWN = enum.auto()


class Reconciliation:
    """Reconciles all topics at one start. Runs in a worker thread."""

    __slots__ = ("_directories", "_has_all_directories", "_names", "_result")

    def __init__(self, directories: Sequence[LogDirectory], *, has_all_directories: bool) -> None:
        """Reconcile with open directories.

        Args:
            has_all_directories: whether every directory of `log.dirs` is open.
        """
        # Constant after construction
        self._directories = {each.directory_id: each for each in directories}
        self._has_all_directories = has_all_directories
        # State
        self._result = Reconciled()
        self._names: set[str] = set()

    def reconcile(self, stored: StoredTopics) -> Reconciled:
        """Remove the files of what was never acknowledged. Returns what to open and to write."""
        self._names = {collision_key(topic.name) for topic in stored.topics}
        for topic in stored.topics:
            if topic.id in stored.deleted:
                # A crash came before the topic was deleted: nothing of it was removed.
                text = topic_id_text(topic.id)
                self._result.node += [Delete(key=each + text) for each in (DELETED, PUT_ASIDE)]
            self._with_topic(topic, stored.placed.get(topic.id))
        known = stored.deleted | {topic.id for topic in stored.topics}
        for placed in stored.placed.values():
            if placed.id not in known:
                self._without_topic(placed)
        return self._result

    # A topic of the cluster.

    def _with_topic(self, topic: ClusterTopic, placed: Placement | None) -> None:
        count = topic.partitions_count
        if placed is None:
            placed = Placement(name=topic.name, id=topic.id, holders=(), first_unsettled=None)
        if len(placed.holders) > count:
            count = self._count_after_growth(topic, placed)
        holders = self._found(topic, count, placed.holders)
        self._open(placed, topic.overrides, holders)
        if holders != list(placed.holders) and topic.id not in self._result.undecided:
            self._place(placed, holders)

    def _count_after_growth(self, topic: ClusterTopic, placed: Placement) -> int:
        """Returns the number of partitions of a topic that has fewer than its placement."""
        count, held = topic.partitions_count, len(placed.holders)
        verdict = self._was_acknowledged(placed, count)
        if verdict is _Verdict.NO:
            _log.warning("%s: adding partitions from %d on did not complete", topic.name, count)
            if self._remove(placed, count):
                return count
        if verdict is _Verdict.YES:
            text = "%s: the metadata has lost its partitions from %d on: opening them as they are"
            _log.error(text, topic.name, count)
            self._put_topic(topic.name, topic.id, held, topic.overrides)
            return held
        self._result.undecided.add(topic.id)
        return count

    def _found(self, topic: ClusterTopic, count: int, holders: Sequence[str]) -> list[str]:
        """Returns the directory of each partition. Looks for logs that were not placed."""
        known = [*holders[:count], *[NOT_KNOWN] * (count - len(holders))]
        missing = [number for number, holder in enumerate(known) if holder == NOT_KNOWN]
        if not missing:
            return known
        found = self._holders_of(topic.name, topic.id)
        for number in missing:
            known[number] = found.get(number, NOT_KNOWN)
        where = count_text(sum(known[number] != NOT_KNOWN for number in missing), "log")
        text = "%s: the node's metadata does not say where %s are: %s found in the log directories"
        _log.error(text, topic.name, count_text(len(missing), "partition"), where)
        return known

    def _holders_of(self, name: str, topic_id: uuid.UUID) -> dict[int, str]:
        """Returns the directory in which each partition of a topic is; none if that is not clear."""
        there: dict[int, list[str]] = {}
        used: dict[int, list[str]] = {}
        is_complete = self._has_all_directories
        for directory_id, directory in self._directories.items():
            try:
                for number in directory.partitions_on_disk(name, topic_id):
                    there.setdefault(number, []).append(directory_id)
                for number in directory.used_partitions(name, topic_id, 0):
                    used.setdefault(number, []).append(directory_id)
            except StorageError as error:
                _log.error("%s: cannot look for its logs: %s", name, error)
                is_complete = False
        found = there | used if is_complete else used
        return {number: holders[0] for number, holders in found.items() if len(holders) == 1}

    # A placement without a topic.

    def _without_topic(self, placed: Placement) -> None:
        verdict = self._was_acknowledged(placed, 0)
        if verdict is _Verdict.NO:
            _log.warning("%s: its creation did not complete", placed.name)
            if self._remove(placed, 0):
                self._result.node.append(Delete(key=PLACED + topic_id_text(placed.id)))
                return
        if verdict is _Verdict.YES and collision_key(placed.name) not in self._names:
            self._put_back(placed)
            return
        text = "%s: the metadata has no topic with the id %s, but there is a placement of its logs"
        _log.error(text + "; they are left alone", placed.name, topic_id_text(placed.id))
        self._result.undecided.add(placed.id)

    def _put_back(self, placed: Placement) -> None:
        text = (
            "%s: the metadata has lost this topic with its configuration: opening its logs as they are;"
            " nothing of it will be removed until its cleanup.policy and retention are set again"
        )
        _log.error(text, placed.name)
        self._names.add(collision_key(placed.name))
        self._put_topic(placed.name, placed.id, len(placed.holders), KEEP_EVERYTHING)
        self._open(placed, KEEP_EVERYTHING, placed.holders)

    # Shared.

    def _was_acknowledged(self, placed: Placement, first: int) -> _Verdict:
        """Returns whether the creation of the logs from `first` on was acknowledged."""
        try:
            for directory in self._directories.values():
                if directory.used_partitions(placed.name, placed.id, first):
                    return _Verdict.YES
        except StorageError as error:
            _log.error("%s: cannot tell yet whether it was created: %s", placed.name, error)
            return _Verdict.UNKNOWN
        if placed.first_unsettled is None or placed.first_unsettled > first:
            return _Verdict.YES
        away = {*placed.holders[first:]} - {NOT_KNOWN} - self._directories.keys()
        if away:
            text = "%s: cannot tell yet whether it was created: log directory %s is not in service"
            _log.error(text, placed.name, min(away))
            return _Verdict.UNKNOWN
        return _Verdict.NO

    def _remove(self, placed: Placement, first: int) -> bool:
        """Remove the logs from `first` on, which were never written to. Returns whether that worked."""
        is_removed = True
        for directory in self._directories.values():
            try:
                if first:
                    directory.delete_partitions(placed.name, placed.id, first)
                else:
                    directory.delete_topic(placed.name, placed.id)
            except StorageError as error:
                _log.error("%s: could not remove what is left of it: %s", placed.name, error)
                directory.go_offline(str(error))
                is_removed = False
        return is_removed

    def _open(
        self, placed: Placement, overrides: Mapping[str, str], holders: Sequence[str]
    ) -> None:
        first = placed.first_unsettled
        self._result.topics.append(
            TopicToOpen(
                name=placed.name,
                id=placed.id,
                overrides=overrides,
                holders=holders,
                first_unsettled=None if first is None or first >= len(holders) else first,
            )
        )

    def _place(self, placed: Placement, holders: Sequence[str]) -> None:
        key, value = PLACED + topic_id_text(placed.id), placed_json(placed.name, holders)
        self._result.node.append(Put(key=key, value=value))

    def _put_topic(
        self, name: str, topic_id: uuid.UUID, count: int, overrides: Mapping[str, str]
    ) -> None:
        value = topic_value(topic_id, count, overrides)
        self._result.cluster.append(Put(key=TOPICS + name, value=value))
