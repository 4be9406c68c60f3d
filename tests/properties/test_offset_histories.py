"""Random histories of commits, transactions and restarts: a broker has what the log says by definition.

Commits, deletions and markers go through a broker in this process, several at once; after each step, and
after each restart, what it would tell a consumer is compared with the model.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.offset_checks import Claim
from server.coordination.producer import Producer
from tests.harness.offsets_model import (
    GROUPS,
    PARTITIONS,
    PRODUCERS,
    Commit,
    Event,
    Marker,
    OffsetsModel,
    Tombstones,
)
from tests.harness.offsets_world import commit, end_transaction
from tests.harness.served_broker import ServedBroker, serving_broker

SEEDS, RESTARTS, STEPS = 6, 4, 15
AT_ONCE_MAX = 3


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_a_broker_has_what_its_log_says_at_every_moment_and_after_restarts(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine the slice of a commit is over before it appends, and a later one overtakes it.
    monkeypatch.setattr("server.runtime.turns.SLICE_SECONDS", 60.0)
    random, model = Random(seed), OffsetsModel()
    for _ in range(RESTARTS):
        async with serving_broker(tmp_path, offsets_topic_num_partitions="1") as served:
            await served.broker.groups.table.loads.loaded()
            # The first writes wait for a thread that makes the log's files, and overtake each other.
            await served.broker.groups.topic.ensure()
            agrees(served, model)
            for _ in range(STEPS):
                events = some_events(random, model)
                await asyncio.gather(*(carried_out(served, event) for event in events))
                for event in events:
                    model = model.then(event)
                agrees(served, model)


def agrees(served: ServedBroker, model: OffsetsModel) -> None:
    held, unstable = {}, set()
    for group in GROUPS:
        offsets = served.broker.offsets.fetch(group)
        assert not isinstance(offsets, ErrorCode)
        for topic, partition in offsets.places():
            committed = offsets.get(topic, partition)
            if committed is not None:
                held[group, partition] = committed.record_offset
            if offsets.is_unstable(topic, partition):
                unstable.add((group, partition))
    assert (held, unstable) == (model.held(), model.unstable())


def some_events(random: Random, model: OffsetsModel) -> list[Event]:
    """What happens at once: a deletion alone, because it goes by what it finds."""
    if random.random() < 0.1:
        group = random.choice(GROUPS)
        places = {*model.held(), *model.unstable()}
        partitions = tuple(partition for owner, partition in places if owner == group)
        return [Tombstones(group, partitions)] if partitions else []
    # A producer continues only when its last transaction is over.
    producers = random.sample((None, None, *PRODUCERS), random.randint(1, AT_ONCE_MAX))
    return [one_event(random, producer_id) for producer_id in producers]


def one_event(random: Random, producer_id: int | None) -> Event:
    if producer_id is not None and random.random() < 0.4:
        return Marker(producer_id, is_commit=random.random() < 0.6)
    partitions = tuple(random.sample(range(PARTITIONS), random.randint(1, PARTITIONS)))
    return Commit(random.choice(GROUPS), partitions, producer_id)


async def carried_out(served: ServedBroker, event: Event) -> None:
    offsets = served.broker.offsets
    match event:
        case Tombstones():
            places = [("t", partition) for partition in event.partitions]
            told = await offsets.delete(event.group, places)
            assert told == dict.fromkeys(places, ErrorCode.NONE)
        case Marker():
            await served.broker.groups.topic.ensure()
            producer = Producer(event.producer_id, 0)
            await end_transaction(served.broker, "", producer, is_commit=event.is_commit)
        case Commit():
            records = [commit(partition, group=event.group) for partition in event.partitions]
            if event.producer_id is None:
                code = await offsets.commit(event.group, Claim(), records)
            else:
                producer = Producer(event.producer_id, 0)
                code = await offsets.commit_in_transaction(
                    event.group, Claim(), producer, records, may_write=lambda _: ErrorCode.NONE
                )
            assert code is ErrorCode.NONE
