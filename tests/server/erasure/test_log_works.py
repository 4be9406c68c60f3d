"""The work on logs for erasures: what is remembered of an attempt, and for how long."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from server.erasure.log_works import RETRY_SECONDS, LogWorks, Wanted
from storage.formats.topic_partition import TopicPartition


class FailingPool:
    async def clean_now(self, log: Any) -> None:
        raise OSError(f"{log.topic_partition} fails")


def log_of(topic: str) -> Any:
    return SimpleNamespace(topic_partition=TopicPartition(topic, 0), topic_id=topic)


async def test_an_attempt_is_remembered_while_its_log_rests_and_then_forgotten() -> None:
    now, ended = 0.0, asyncio.Event()
    nothing: Any = None
    clock: Any = SimpleNamespace(monotonic=lambda: now)
    pool: Any = FailingPool()
    works = LogWorks(pool, nothing, clock, list, ended.set)
    for number in range(3):
        deleted = log_of(f"deleted-{number}")
        works.begin(Wanted(deleted))
        await ended.wait()
        ended.clear()
        assert works.failure(deleted) == f"deleted-{number}-0 fails"
        assert not works.may_try(deleted)
    assert len(works._attempts) == 3

    now += RETRY_SECONDS
    assert works.may_try(log_of("deleted-0"))
    works.begin(Wanted(log_of("another")))
    await ended.wait()

    assert [each.topic for each in works._attempts] == ["another"]
