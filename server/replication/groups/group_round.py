"""What one look at the groups of a source has found: pure bookkeeping of `group_sync.py`.

A look may end early, a broker of the source may not answer, and a group may be refused for a moment.
What waits in such a group is kept from the look before, so that a promotion still knows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cleaner.rules.text import count_text
from server.replication.groups.group_offsets import Commit
from storage.formats.topic_partition import TopicPartition

GROUPS_MAX = 10_000
WAITING_MAX = 100_000
"""Commits that are remembered because their records are not here yet."""
PROBLEMS_MAX = 100

Commits = Mapping[TopicPartition, Commit]


@dataclass(slots=True)
class GroupRound:
    """The findings of one look at all brokers of the source."""

    groups: set[str] = field(default_factory=set)
    """Groups that the link follows."""
    with_members: int = 0
    problems: dict[str, str] = field(default_factory=dict)
    """Why a group, or a broker of the source, was left out."""
    waiting: dict[str, Commits] = field(default_factory=dict)
    """By group: commits whose records are not here yet."""
    waiting_count: int = 0
    is_whole: bool = False
    """Whether every broker of the source has answered."""
    _answered: set[str] = field(default_factory=set)
    """Groups whose commits are known."""

    def begin(self, group: str) -> bool:
        """Note a group that the link follows. Returns False if there are too many."""
        if len(self.groups) == GROUPS_MAX:
            many = count_text(GROUPS_MAX, "group")
            self.problem("groups", f"more than {many}: name fewer by --group")
            return False
        self.groups.add(group)
        return True

    def answered(self, group: str, waiting: Commits) -> None:
        """Take what waits in a group whose commits are known."""
        self._answered.add(group)
        self._remember(group, waiting)

    def keep(self, before: GroupRound) -> None:
        """Keep what the look before has found of groups whose commits this one does not know.

        Groups that the source no longer has are forgotten, once all its brokers have answered.
        """
        for group, waiting in before.waiting.items():
            is_there = group in self.groups or not self.is_whole
            if is_there and group not in self._answered:
                self._remember(group, waiting)
        if not self.is_whole:
            missing = sorted(before.groups - self.groups)
            self.groups.update(missing[: GROUPS_MAX - len(self.groups)])

    def problem(self, subject: str, reason: str) -> None:
        """Note why something was left out, of the first ones."""
        if len(self.problems) < PROBLEMS_MAX:
            self.problems[subject] = reason

    def _remember(self, group: str, waiting: Commits) -> None:
        if not waiting:
            return
        if self.waiting_count + len(waiting) > WAITING_MAX:
            self.problem(
                group,
                f"it waits for the records of {count_text(len(waiting), 'offset')}, which are not"
                f" remembered: a promotion before they are copied leaves the group where it is",
            )
            return
        self.waiting[group] = waiting
        self.waiting_count += len(waiting)
