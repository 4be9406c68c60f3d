"""Takes committed offsets of a source's groups along, so that a group continues here after a promotion.

    every 10 s, at most a tenth of the time     for each broker of the source: its groups, and what those
                                                that the link follows have committed
    `group_offsets.py`                          what to write for each mirrored partition
    `local_groups.py`                           writes it, unless the group has members here

One request is under way at a time. A group that fails stops no other, and is tried again in the next
round.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from protocol.wire.numbers import Offset
from server.client.access import Access
from server.client.broker_client import BrokerClient, connected
from server.client.errors import ClientFailed
from server.replication.groups.group_offsets import (
    Commit,
    GroupRefused,
    Waits,
    clamped,
    commit_to_write,
)
from server.replication.groups.group_round import Commits, GroupRound
from server.replication.groups.local_groups import HasMembers
from server.replication.groups.source_groups import committed_by, groups_of
from server.replication.mirror import Mirror
from server.replication.state_table import MirrorState
from server.runtime.tasks import guarded
from server.runtime.turns import Pace, Turns
from storage.formats.topic_partition import TopicPartition
from storage.threads import loop_thread

_log = logging.getLogger("server.replication")

ROUND_SECONDS = 10.0
LOOK_SECONDS = 1.0
"""How often a link without groups looks whether it has some now, or is no longer paused."""
REST_SHARE = 9
"""A round that takes long is followed by a rest of so many times its duration."""
LAST_ROUND_SECONDS_MAX = 10.0
"""How long a promotion waits for the source's groups."""
COMMITS_AT_ONCE = 1_000
COMMIT_BYTES_AT_ONCE = 1 << 18
"""The most bytes of metadata in one commit, which is written as one batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """What people see of the groups of a link."""

    groups: int
    """Groups of the source that the link follows, at the last round."""
    synced_ms: int | None
    """When the last round ended in which every broker of the source answered, as wall time."""
    waiting: int
    """Offsets that are not written because their records are not here yet."""
    with_members: int
    """Groups that are left alone because they have members here."""
    problems: Mapping[str, str]
    """Why a group, or a broker of the source, was left out."""


class Here(Protocol):
    """The groups of this broker (`LocalGroups`)."""

    def committed(self, group: str) -> Callable[[TopicPartition], Commit | None]:
        """Returns a function that returns what the group has committed. Raises GroupRefused."""

    async def commit(self, group: str, commits: Mapping[TopicPartition, Commit]) -> None:
        """Commit offsets. Raises HasMembers if the group has some, GroupRefused."""


@loop_thread
class GroupSync:
    """The group offsets of one link."""

    __slots__ = (
        "_access",
        "_brokers",
        "_here",
        "_last",
        "_mirror",
        "_now_ms",
        "_round_lock",
        "_synced_ms",
        "_writing",
    )

    def __init__(
        self,
        here: Here,
        access: Access,
        *,
        brokers: Callable[[], Collection[str]],
        mirror: Callable[[TopicPartition], Mirror | None],
        now_ms: Callable[[], int],
    ) -> None:
        """
        Args:
            brokers: returns the addresses of all brokers of the source.
            mirror: returns the mirror of a partition; None from when its promotion begins.
        """
        # Constant after construction
        self._here = here
        self._access = access
        self._brokers = brokers
        self._mirror = mirror
        self._now_ms = now_ms
        self._round_lock = asyncio.Lock()
        self._writing = asyncio.Lock()
        """Held while offsets of mirrors are written: a promotion waits for it."""
        # State
        self._last = GroupRound()
        self._synced_ms: int | None = None

    def facts(self) -> GroupFacts:
        """Returns what the last round has found."""
        last = self._last
        return GroupFacts(
            groups=len(last.groups),
            synced_ms=self._synced_ms,
            waiting=last.waiting_count,
            with_members=last.with_members,
            problems=dict(last.problems),
        )

    async def run(self, follows: Callable[[], Callable[[str], bool] | None]) -> None:
        """Sync until cancelled.

        Args:
            follows: returns which groups to follow; None while there is nothing to follow.
        """
        while True:
            followed = follows()
            if followed is None:
                await asyncio.sleep(LOOK_SECONDS)
                continue
            started_s = time.monotonic()
            with guarded("group offsets of a link"):
                await self.sync(followed)
            took_s = time.monotonic() - started_s
            await asyncio.sleep(max(ROUND_SECONDS, REST_SHARE * took_s))

    async def sync(self, follows: Callable[[str], bool]) -> None:
        """Write what the source's groups have committed since the last time."""
        async with self._round_lock:
            await self._sync(follows)

    @asynccontextmanager
    async def last_round(self, follows: Callable[[str], bool] | None) -> AsyncIterator[None]:
        """Sync once more, for a short time at most, before a promotion; within the context no other
        round begins."""
        is_held = False
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_ROUND_SECONDS_MAX):
                    is_held = await self._round_lock.acquire()
                    if follows is not None:
                        await self._sync(follows)
            yield
        finally:
            if is_held:
                self._round_lock.release()

    async def _sync(self, follows: Callable[[str], bool]) -> None:
        found = GroupRound()
        try:
            found.is_whole = await self._sync_all(follows, found)
            if found.is_whole:
                self._synced_ms = self._now_ms()
        finally:
            # Also what a look that ran out of time has seen: it may have set a group back.
            found.keep(self._last)
            self._last = found

    async def _sync_all(self, follows: Callable[[str], bool], found: GroupRound) -> bool:
        """Sync the groups of every broker. Returns whether all brokers have answered."""
        is_whole = True
        for address in sorted(self._brokers()):
            try:
                async with connected(address, self._access) as client:
                    await self._sync_of(client, follows, found)
            except ClientFailed as error:
                is_whole = False
                found.problem(address, str(error))
        return is_whole

    async def settle(self, topic: str, ends: Mapping[TopicPartition, Offset]) -> list[str]:
        """Let the groups continue from the end of a topic that is being promoted, where they wait for
        records that will not come. Returns a sentence for each offset.

        Args:
            ends: where its partitions end. No write of this class to them follows.
        """
        async with self._writing:
            told = []
            for group, waiting in self._last.waiting.items():
                of_topic = {each: commit for each, commit in waiting.items() if each.topic == topic}
                last = {
                    each: commit if commit.offset <= ends[each] else clamped(commit, ends[each])
                    for each, commit in of_topic.items()
                    if each in ends
                }
                told += await self._write_last(group, of_topic, last)
            return told

    async def _write_last(
        self,
        group: str,
        waiting: Commits,
        last: Commits,
    ) -> list[str]:
        try:
            await self._write(group, last)
        except HasMembers:
            return []
        except GroupRefused as refused:
            return [f"group {group}: {refused}"]
        return [
            f"group {group} has committed offset {waiting[each].offset} of {each} at the source, and"
            f" continues here from {commit.offset}"
            for each, commit in last.items()
            if commit != waiting[each]
        ]

    async def _sync_of(
        self, client: BrokerClient, follows: Callable[[str], bool], found: GroupRound
    ) -> None:
        """Sync the groups that one broker coordinates."""
        groups = await groups_of(client, follows)
        for group in groups:
            if not found.begin(group):
                return
            try:
                theirs = await committed_by(client, group, self._is_copied)
                await self._take(group, theirs, found)
            except HasMembers:
                found.with_members += 1
            except GroupRefused as refused:
                found.problem(group, str(refused))

    async def _take(self, group: str, theirs: Commits, found: GroupRound) -> None:
        async with self._writing:
            # A promotion that has begun meanwhile has taken its mirrors out.
            here, pace = self._here.committed(group), Pace(Turns())
            due, waiting = dict[TopicPartition, Commit](), dict[TopicPartition, Commit]()
            async for partition, commit in pace.paced(theirs.items()):
                mirror = self._mirror(partition)
                if mirror is None or mirror.state is not MirrorState.COPYING:
                    continue
                decided = commit_to_write(commit, here(partition), mirror.log.high_watermark)
                if isinstance(decided, Commit):
                    due[partition] = decided
                elif decided is Waits.FOR_RECORDS:
                    waiting[partition] = commit
            found.answered(group, waiting)
            await self._write(group, due)

    async def _write(self, group: str, commits: Commits) -> None:
        for part in _parts(commits):
            await self._here.commit(group, part)

    def _is_copied(self, partition: TopicPartition) -> bool:
        mirror = self._mirror(partition)
        return mirror is not None and mirror.state is MirrorState.COPYING


def _parts(commits: Commits) -> Iterator[dict[TopicPartition, Commit]]:
    """Yields commits that fit into one batch each."""
    part, size = dict[TopicPartition, Commit](), 0
    for partition, commit in commits.items():
        size += len(commit.metadata.encode())
        if part and (len(part) == COMMITS_AT_ONCE or size > COMMIT_BYTES_AT_ONCE):
            yield part
            part, size = {}, len(commit.metadata.encode())
        part[partition] = commit
    if part:
        yield part
