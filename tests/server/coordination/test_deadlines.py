"""Deadlines: one timer wakes each group in time."""

from __future__ import annotations

import asyncio

from metrics.mistakes import MISTAKES
from server.coordination.deadlines import Deadlines


class Scene:
    """Deadlines on a fake clock, which also moves the loop's time."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.told: list[tuple[int, str]] = []
        self.deadlines = Deadlines(lambda: self.now_ms, self._tell)

    def _tell(self, group_id: str) -> None:
        self.told.append((self.now_ms, group_id))

    async def pass_to(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.deadlines._on_timer()
        await asyncio.sleep(0)


async def test_each_is_told_once_when_its_time_has_come() -> None:
    scene = Scene()
    scene.deadlines.set("late", 3_000)
    scene.deadlines.set("early", 2_000)
    await scene.pass_to(1_999)
    assert scene.told == []
    await scene.pass_to(2_000)
    await scene.pass_to(9_000)
    assert scene.told == [(2_000, "early"), (9_000, "late")]


async def test_an_earlier_deadline_replaces_a_later_one_and_not_the_other_way_round() -> None:
    scene = Scene()
    for due_ms in (3_000, 2_000, 4_000):
        scene.deadlines.set("group", due_ms)
    scene.deadlines.set("group", None)
    assert len(scene.deadlines) == 1
    await scene.pass_to(2_000)
    await scene.pass_to(9_000)
    assert scene.told == [(2_000, "group")]


async def test_who_is_told_may_ask_to_be_told_again() -> None:
    scene = Scene()
    scene.deadlines._on_due = lambda group_id: scene.deadlines.set(group_id, scene.now_ms + 500)
    scene.deadlines.set("group", 2_000)
    await scene.pass_to(2_000)
    scene.deadlines._on_due = scene._tell
    await scene.pass_to(2_499)
    assert scene.told == []
    await scene.pass_to(2_500)
    assert scene.told == [(2_500, "group")]


async def test_a_real_timer_rings() -> None:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    deadlines = Deadlines(lambda: round(loop.time() * 1_000), lambda _: told.set())
    deadlines.set("group", round(loop.time() * 1_000) + 5)
    await asyncio.wait_for(told.wait(), 10)


async def test_nobody_is_told_after_the_stop() -> None:
    scene = Scene()
    scene.deadlines.set("group", 1_001)
    scene.deadlines.stop()
    await scene.pass_to(9_000)
    assert scene.told == []
    assert scene.deadlines._timer is None


async def test_who_fails_when_told_does_not_keep_the_others_from_being_told() -> None:
    scene = Scene()

    def tell(group_id: str) -> None:
        if group_id == "bad":
            raise RuntimeError("a mistake")
        scene._tell(group_id)

    scene.deadlines._on_due = tell
    for group_id in ("first", "bad", "last"):
        scene.deadlines.set(group_id, 2_000)
    scene.deadlines.set("later", 3_000)
    failed = MISTAKES.by_work().get("deadline", 0)

    await scene.pass_to(2_000)
    assert scene.told == [(2_000, "first"), (2_000, "last")]
    assert MISTAKES.by_work()["deadline"] == failed + 1
    assert scene.deadlines._timer is not None
    await scene.pass_to(3_000)
    assert scene.told[-1] == (3_000, "later")
    scene.deadlines.stop()
