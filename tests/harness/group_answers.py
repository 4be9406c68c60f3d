"""Asks a broker how a classic group answers each request in each state, from each client.

A cell of the matrix is a scene (`group_scenes.py`), a probe and an identity (`group_probes.py`): the
answer, the group's state if it has changed, and the answers to requests that had waited. The same code
asks Apache Kafka and the broker under test:

    python -m tests.harness.group_answers HOST:PORT    print the answers of a Kafka

Set `group.initial.rebalance.delay.ms=0` there.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack

from protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.sync_group import SyncGroupResponse
from protocol.wire.error_codes import ErrorCode
from protocol.wire.schema import Message
from tests.harness.group_probes import (
    IDENTITIES,
    Identity,
    Probe,
    probes,
    told_first_commit,
    told_join,
    told_sync,
)
from tests.harness.group_scenes import (
    OTHER_TOPIC,
    PATIENCE_SECONDS,
    PENDING,
    TOPIC,
    Asked,
    Scene,
    Stage,
    scenes,
)
from tests.harness.raw_client import RawClient

AT_ONCE = 16
"""Cells that run in parallel; each has its own group."""

NONE = "-"
"""The cell of an identity that the request cannot carry."""

Row = tuple[str, str]
"""The names of a scene and a probe."""

_numbers = itertools.count()
_RUN = time.time_ns()


async def matrix(asked: Asked, *, at_once: int = AT_ONCE) -> dict[Row, tuple[str, ...]]:
    """Returns the answers in each scene to each probe: one cell for each identity."""
    await _prepare(asked)
    rows = list(itertools.product(scenes(), probes()))
    cells = [(scene, probe, identity) for scene, probe in rows for identity in probe.identities]
    found: dict[tuple[str, str, str], str] = {}
    waiting = iter(cells)

    async def work() -> None:
        for scene, probe, identity in waiting:
            key = (scene.name, probe.name, identity.name)
            found[key] = await _cell(asked, scene, probe, identity)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work())
    return {
        (scene.name, probe.name): tuple(
            found.get((scene.name, probe.name, identity.name), NONE) for identity in IDENTITIES
        )
        for scene, probe in rows
    }


async def _cell(asked: Asked, scene: Scene, probe: Probe, identity: Identity) -> str:
    async with AsyncExitStack() as stack:
        stage = await Stage.open(asked, f"scene-{_RUN}-{next(_numbers)}", stack)
        await scene.set_up(stage)
        if identity.role == PENDING:
            await stage.reserve_id()
        before = await stage.state()
        request = await probe.request(stage, identity)
        asking = stage.start(request, probe.version, probe.response_type)
        await asked.settle(stage.group_id, asking)
        answer = probe.told(asking.result(), stage) if asking.done() else "waits"
        await asked.settle(stage.group_id, *stage.waiting.values())
        after = await stage.state()
        changed = [] if after == before else [f"then {after}"]
        return "; ".join([answer, *changed, *_heard(stage)])


def _heard(stage: Stage) -> Iterator[str]:
    """Yields the answers to the requests that had waited."""
    for role, task in stage.waiting.items():
        if task.done():
            yield f"{role} hears {_told(task.result(), stage)}"


def _told(answer: Message, stage: Stage) -> str:
    if isinstance(answer, JoinGroupResponse):
        return told_join(answer, stage)
    assert isinstance(answer, SyncGroupResponse)
    return told_sync(answer, stage)


async def _prepare(asked: Asked) -> None:
    """Create the topics, and wait for the coordinators, which create theirs at first use."""
    async with await RawClient.connect(*asked.address) as client:
        topics = tuple(
            CreatableTopic(
                name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
            )
            for name in (TOPIC, OTHER_TOPIC)
        )
        request = CreateTopicsRequest(topics=topics, timeout_ms=30_000)
        await client.call(request, 5, CreateTopicsResponse)
        for key_type in (0, 1):
            find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=(TOPIC,))
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    answer = await client.call(find, 4, FindCoordinatorResponse)
                    if answer.coordinators[0].error_code == ErrorCode.NONE:
                        break
                    await asyncio.sleep(0.1)
    async with AsyncExitStack() as stack:
        stage = await Stage.open(asked, f"scene-{_RUN}-first", stack)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await told_first_commit(stage) != "NONE":  # noqa: ASYNC110
                await asyncio.sleep(0.1)


# As text.


def written(rows: dict[Row, tuple[str, ...]]) -> str:
    """Returns the matrix as text for a file."""
    lines = [" | ".join(("state", "request", *(identity.name for identity in IDENTITIES)))]
    lines += [" | ".join((*row, *cells)) for row, cells in rows.items()]
    return "\n".join(lines) + "\n"


def read(text: str) -> dict[Row, tuple[str, ...]]:
    """Parse the matrix from its text."""
    rows: dict[Row, tuple[str, ...]] = {}
    for line in text.splitlines()[1:]:
        scene, request, *cells = line.split(" | ")
        rows[scene, request] = tuple(cells)
    return rows


class _Kafka:
    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self.address = (host, int(port))

    async def settle(self, group_id: str, *waiting: asyncio.Task[Message]) -> None:
        if waiting:
            await asyncio.wait(waiting, timeout=SETTLE_SECONDS)


SETTLE_SECONDS = 3.0
"""A request that Kafka has not answered by then waits for an event."""


if __name__ == "__main__":
    sys.stdout.write(written(asyncio.run(matrix(_Kafka(sys.argv[1])))))
