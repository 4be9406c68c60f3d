"""Slots are committed when they say something new, and not because time passes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from server.replication.findings import SourceTopic
from server.replication.resync import Resync
from server.replication.slot_content import (
    SAFE_SHARE,
    ResyncMemory,
    SlotContent,
    resync_of,
    safe_ms_of,
)
from server.replication.slots import RENEW_MS, commit_slots
from server.replication.state_table import Event, Guard, MirrorState
from tests.harness.mirror_world import MirrorWorld

DAY_MS = 86_400_000
SOURCE = SourceTopic(
    topic_id=UUID(int=7),
    partitions_count=1,
    compacts=True,
    deletes=False,
    delete_retention_ms=DAY_MS,
)


class Coordinator:
    """A source that takes every commit."""

    def __init__(self) -> None:
        self.slots: list[tuple[int, str]] = []

    async def call(self, request: OffsetCommitRequest, *_: object) -> OffsetCommitResponse:
        topics = []
        for topic in request.topics:
            self.slots += [
                (each.committed_offset, each.committed_metadata or "") for each in topic.partitions
            ]
            answers = tuple(
                OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=0)
                for each in topic.partitions
            )
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=answers))
        return OffsetCommitResponse(topics=tuple(topics))


class Slot:
    """The slot of one mirror, and a clock."""

    def __init__(self, source: SourceTopic = SOURCE) -> None:
        self.mirror = MirrorWorld(seed=0).mirror
        self.source, self.coordinator, self.now_ms = source, Coordinator(), 1_000
        self.mirror.slot = None

    async def commit(self) -> int:
        """Look at the slot, as the link does each second. Returns how many were committed so far."""
        client: Any = self.coordinator
        topics = {self.mirror.log.topic_partition.topic: self.source}
        await commit_slots(client, "__mirror.dr", [self.mirror], topics, lambda: self.now_ms)
        return len(self.coordinator.slots)

    async def idle(self, seconds: int) -> int:
        """Let the source answer each second that it has nothing new."""
        count = 0
        for _ in range(seconds):
            self.now_ms += 1_000
            self.mirror.tombstones.note(self.now_ms, source_end=0, end=0, is_empty=False)
            count = await self.commit()
        return count


async def test_an_idle_mirrors_slot_is_not_committed_again_within_the_hour() -> None:
    slot = Slot()
    assert await slot.idle(RENEW_MS // 1_000) == 1
    assert await slot.idle(2) == 2, "so that it does not expire"


async def test_a_slot_that_moves_or_has_another_state_is_committed_at_once() -> None:
    slot = Slot()
    await slot.idle(1)
    slot.mirror.happened(Event.PAUSE, "an operator")
    assert await slot.idle(1) == 2
    assert json.loads(slot.coordinator.slots[-1][1])["state"] == "paused"


@pytest.mark.parametrize(("delete_retention_ms", "commits"), [(60_000, 9), (600_000, 1), (0, 61)])
async def test_the_sources_delete_retention_says_how_old_the_safe_time_may_be(
    delete_retention_ms: int, commits: int
) -> None:
    slot = Slot(replace(SOURCE, delete_retention_ms=delete_retention_ms))
    assert await slot.idle(61) == commits


Moves = st.lists(st.tuples(st.integers(0, 100_000), st.booleans()), max_size=40)


@given(moves=Moves, delete_retention_ms=st.sampled_from((0, 60_000, 1_000_000, DAY_MS)))
def test_a_restart_never_finds_a_safe_time_that_is_too_old_or_too_new(
    moves: list[tuple[int, bool]], delete_retention_ms: int
) -> None:
    safe_ms, slot = 0, SlotContent(Offset(0), MirrorState.COPYING, "", 0)
    for passed_ms, is_safe in moves:
        safe_ms += passed_ms if is_safe else 0
        now = SlotContent(Offset(0), MirrorState.COPYING, "", safe_ms)
        if now.has_news(slot, delete_retention_ms):
            slot = now
        remembered = safe_ms_of(slot.metadata())
        assert remembered is not None
        assert 0 <= safe_ms - remembered <= delete_retention_ms / SAFE_SHARE


@pytest.mark.parametrize("metadata", [None, "", "{", "[]", "{}", '{"safe_ms": "x"}'])
def test_a_slot_that_cannot_be_read_remembers_nothing(metadata: str | None) -> None:
    assert safe_ms_of(metadata) is None


@pytest.mark.parametrize(
    "resync", [None, 5, {}, {"cause": 5}, {"cause": "LATER"}, {"puts_aside": True}], ids=str
)
def test_a_resync_that_cannot_be_read_is_none(resync: object) -> None:
    assert resync_of(json.dumps({"resync": resync})) is None


def test_a_resync_whose_old_log_may_have_to_stay_puts_it_aside() -> None:
    memory = ResyncMemory(Guard.SOURCE_LOST, puts_aside=True)
    assert resync_of('{"resync": {"cause": "SOURCE_LOST"}}') == memory
    for puts_aside in (False, True):
        slot = SlotContent(
            Offset(0), MirrorState.RESYNC, "", 5, memory._replace(puts_aside=puts_aside)
        )
        assert resync_of(slot.metadata()) == slot.resync


def test_a_resync_whose_copy_is_the_log_was_complete_and_its_safe_time_counts() -> None:
    resync = Resync(cause=Guard.MISSED_TOMBSTONES, puts_aside=False, started_ms=0)
    memory = resync.memory._replace(safe_ms=70)
    slot = SlotContent(Offset(0), MirrorState.RESYNC, "", 5, memory).metadata()
    for other in (None, uuid4()):
        assert (resync_of(slot, other), safe_ms_of(slot, other)) == (memory, 5)
    assert (resync_of(slot, resync.id), safe_ms_of(slot, resync.id)) == (None, 70)
    of_an_earlier_release = '{"safe_ms": 5, "resync": {"cause": "MISSED_TOMBSTONES"}}'
    assert resync_of(of_an_earlier_release, resync.id) is not None


def test_the_safe_time_of_a_copy_is_news_when_it_is_much_later() -> None:
    memory = ResyncMemory(Guard.MISSED_TOMBSTONES, puts_aside=False, id="x", safe_ms=0)
    stored = SlotContent(Offset(0), MirrorState.RESYNC, "", None, memory)
    for safe_ms, is_news in ((DAY_MS // 20, False), (DAY_MS // 5, True)):
        now = stored._replace(resync=memory._replace(safe_ms=safe_ms))
        assert now.has_news(stored, DAY_MS) is is_news
    assert stored._replace(resync=memory._replace(id="y")).has_news(stored, DAY_MS)


def test_a_time_that_is_known_or_forgotten_is_news() -> None:
    known = SlotContent(Offset(0), MirrorState.COPYING, "", 5)
    unknown = known._replace(safe_ms=None)
    assert known.has_news(unknown, DAY_MS)
    assert unknown.has_news(known, DAY_MS)
    assert not unknown.has_news(unknown, DAY_MS)


async def test_a_refused_slot_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here with one slot in a request; by default the first thousand mirrors stop all others."""
    monkeypatch.setattr("server.replication.slots.COMMITS_AT_ONCE", 1)
    refused, other = MirrorWorld(seed=0).mirror, MirrorWorld(seed=1).mirror
    refused.slot = other.slot = None
    coordinator = Coordinator()

    class Refusing:
        async def call(self, request: OffsetCommitRequest, *_: object) -> OffsetCommitResponse:
            answer = await coordinator.call(request)
            if len(coordinator.slots) % 2:
                for topic in answer.topics:
                    for each in topic.partitions:
                        object.__setattr__(each, "error_code", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return answer

    client: Any = Refusing()
    for _ in range(2):
        coordinator.slots.clear()
        topics = {refused.log.topic_partition.topic: SOURCE}
        refusals = await commit_slots(client, "__mirror.dr", [refused, other], topics, lambda: 1)
        assert refusals <= {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert other.slot is not None
    assert refused.state is MirrorState.RETRYING
    assert "refuses its slot" in refused.reason
