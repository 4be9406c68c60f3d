"""Queries that other threads may make while the loop's thread changes topics and producers."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from protocol.wire.numbers import Epoch, Offset, ProducerId
from storage.state.producer_state import AppendedBatch, ProducerStates
from tests.harness.topics_world import opened

ROUNDS = 300


@contextmanager
def changing(change: Callable[[int], None]) -> Iterator[None]:
    """Change something in another thread, as often as possible, until the block ends.

    The garbage collector runs at almost every allocation and lets the other thread run, as a callback or
    a finalizer in Python may. So `list(a_dict.items())`, which allocates tuples, is not atomic.
    """
    is_over = threading.Event()

    def run() -> None:
        number = 0
        while not is_over.is_set():
            change(number)
            number += 1

    def let_others_go_on(*_: object) -> None:
        time.sleep(0)

    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(20, 1_000, 1_000)
    gc.callbacks.append(let_others_go_on)
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        gc.callbacks.remove(let_others_go_on)
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)


async def test_topics_and_logs_are_listed_while_others_come_and_go(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        kept = await world.create("kept", 1)
        topics = world.topics
        names = [f"t{number}" for number in range(50)]

        def change(number: int) -> None:
            name = names[number % len(names)]
            if topics._by_name.pop(name, None) is None:
                topics._by_name[name] = replace(kept, name=name)

        with changing(change):
            for _ in range(ROUNDS):
                found = topics.all()
                assert [each.name for each in found] == sorted(each.name for each in found)
                assert kept in found
                assert kept.partitions[0] in topics.logs()
        for name in names:
            topics._by_name.pop(name, None)


def test_producers_are_listed_while_others_come_and_go() -> None:
    states = ProducerStates()
    states.remember(ProducerId(1), Epoch(0), AppendedBatch(0, 0, Offset(7)), now_ms=1)

    def change(number: int) -> None:
        states.marked(ProducerId(2 + number % 500), Epoch(0), now_ms=number)
        if number % 500 == 499:
            states.expire(number - 100)
            states.remember(ProducerId(1), Epoch(0), AppendedBatch(0, 0, Offset(7)), now_ms=number)

    with changing(change):
        for _ in range(ROUNDS):
            states.marker_epochs()
            states.last_data_offsets()
            states.open_transactions()
