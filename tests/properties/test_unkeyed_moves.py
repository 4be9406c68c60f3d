"""A log, and the one that takes its records without a key, lose none of them in any history."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.pacing.meter import CleaningAborted
from protocol.records.record import Record
from tests.harness.log_builder import KeyValue
from tests.harness.memory_fs import Loss
from tests.harness.unkeyed_log import MovingLog, Origin

PAIRS = st.lists(
    st.tuples(st.sampled_from([None, None, b"a", b"b"]), st.sampled_from([None, b"1", b"22" * 40])),
    min_size=1,
    max_size=4,
)
STEPS = st.one_of(
    st.tuples(st.just("append"), PAIRS),
    st.tuples(st.just("roll"), st.none()),
    st.tuples(st.just("pass"), st.none()),
    st.tuples(st.just("refused pass"), st.integers(0, 3)),
    st.tuples(st.just("stopped pass"), st.integers(1, 30)),
    st.tuples(st.just("crash in a pass"), st.integers(1, 40)),
)


class Crash(Exception):
    """The power fails."""


class History:
    """The logs, and a model: every record without a key that was ever appended."""

    def __init__(self, seed: int) -> None:
        self.log = MovingLog()
        self.random = Random(seed)
        self.appended: set[Origin] = set()

    def take(self, step: str, value: object) -> None:
        match step, value:
            case "append", list(pairs):
                self.append(pairs)
            case "roll", _:
                self.log.roll()
            case "refused pass", int(chunks):
                self.log.aside.refuses = after(chunks)
                self.log.run_pass()
                self.log.aside.refuses = lambda _: False
            case "stopped pass", int(checks):
                self.log.roll()
                with suppress(CleaningAborted):
                    self.log.run_pass(self.log.plan(), stop=stop_after(checks))
            case "crash in a pass", int(operations):
                self.crash(operations)
            case _:
                self.log.run_pass()
        self.check()

    def append(self, pairs: Sequence[KeyValue]) -> None:
        base = self.log.append(*pairs).base_offset
        self.appended |= {
            (base + at, value) for at, (key, value) in enumerate(pairs) if key is None
        }

    def crash(self, operations: int) -> None:
        self.log.roll()
        plan, left = self.log.plan(), iter(range(operations))

        def count(action: str, path: str) -> None:
            if next(left, None) is None:
                raise Crash

        self.log.fs.on_operation = count
        with suppress(Crash):
            self.log.run_pass(plan)
        self.log.fs.on_operation = None
        loss = self.random.choice(list(Loss))
        self.log = self.log.restarted(self.log.fs.after_crash(loss, self.random))

    def check(self) -> None:
        found = {*self.log.unkeyed(), *self.log.aside.origins()}
        assert found == self.appended


def after(chunks: int) -> Callable[[Sequence[Record]], bool]:
    left = iter(range(chunks))
    return lambda _: next(left, None) is None


def stop_after(checks: int) -> Callable[[float], bool]:
    left = iter(range(checks))
    return lambda _: next(left, None) is None


@settings(max_examples=3000 if "KOMPAKT_SOAK" in os.environ else 60, deadline=None)
@given(steps=st.lists(STEPS, max_size=20), seed=st.integers(0, 1 << 16))
def test_no_record_without_a_key_is_ever_in_neither_place(
    steps: list[tuple[str, object]], seed: int
) -> None:
    history = History(seed)
    for step, value in steps:
        history.take(step, value)

    history.log.append((b"last", b"1"))
    history.log.run_pass()

    assert history.log.unkeyed() == []
    assert set(history.log.aside.origins()) == history.appended
