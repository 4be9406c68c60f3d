"""Answers that only repeat that there is nothing new are judged now and then, all others at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from server.replication.findings import SourceAnswer, Verdict
from server.replication.mirror import JUDGE_EVERY_MS, Mirror
from server.replication.state_table import Event, Guard, MirrorState
from tests.harness.mirror_world import MirrorWorld


class World(MirrorWorld):
    """Counts judgements; nothing happens by chance."""

    judged = 0

    def judge(self, mirror: Mirror, answer: SourceAnswer) -> Verdict:
        self.judged += 1
        return super().judge(mirror, answer)

    def _write(self) -> None:
        """The source is idle."""

    async def idle(self, count: int = 1, **changed: object) -> int:
        """Take so many answers without records. Returns how many were judged."""
        before = self.judged
        for _ in range(count):
            fetched = self._answer(self.mirror)
            answer = replace(fetched.answer, **changed)  # type: ignore[arg-type]
            await self.copier.take(
                self.mirror, replace(fetched, answer=answer), self._source_epoch_end
            )
        return self.judged - before


@pytest.fixture
async def world() -> World:
    """Returns a world whose mirror has everything."""
    world = World(seed=0)
    world.source.append((b"a", b"1"), (b"b", b"2"))
    world._remember(0)
    await world.settle()
    await world.idle(2)
    return world


async def test_repeated_answers_are_judged_once_in_a_while(world: World) -> None:
    assert await world.idle(50) == 0
    world._pass_time(JUDGE_EVERY_MS)
    assert await world.idle(50) == 1


async def test_they_tell_at_once_that_nothing_is_missing(world: World) -> None:
    world._pass_time(JUDGE_EVERY_MS - 1)
    assert await world.idle() == 0
    assert world.mirror.tombstones.safe_ms == world.now_ms


@pytest.mark.parametrize(
    "changed",
    [
        {"error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER},
        {"start": Offset(1)},
        {"high_watermark": Offset(7)},
        {"high_watermark": Offset(1)},
        {"diverging": (0, Offset(1))},
    ],
    ids=str,
)
async def test_an_answer_that_says_something_else_is_judged(
    world: World, changed: dict[str, object]
) -> None:
    assert await world.idle(1, **changed) == 1


async def test_a_mirror_that_was_paused_is_judged_again(world: World) -> None:
    world.mirror.happened(Event.PAUSE)
    world.mirror.happened(Event.RESUME)
    assert await world.idle() == 1
    assert world.mirror.state is MirrorState.COPYING


async def test_what_changes_beside_the_answers_is_found(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = Verdict(guard=Guard.GONE, reason="the topic is gone")
    monkeypatch.setattr(MirrorWorld, "judge", lambda *_: gone)
    states = []
    for passed_ms in (0, JUDGE_EVERY_MS):
        world._pass_time(passed_ms)
        await world.idle()
        states.append(world.mirror.state)
    assert states == [MirrorState.COPYING, MirrorState.FAILED]
