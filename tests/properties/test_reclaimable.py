"""After any history of a log, the estimate of what a pass frees lies within its stated error.

A rehearsal counts exactly what a pass drops. The estimate is about superseded records, so what goes for
another reason may be missing in it: aborted records, tombstones whose time has come, and the last record
below a pass's end, which stays.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.pacing.meter import CleaningAborted
from cleaner.rules.reclaimable import Reclaimable
from protocol.records.control_record import ControlType
from tests.harness.compacted_log import CONFIG, CompactedLog, never_stop
from tests.harness.counted_keys import EVERYTHING, CountedKeys
from tests.harness.log_builder import KeyValue
from tests.harness.rehearsal import rehearse
from tests.harness.sidecar_mode import TRUTHFUL, SidecarMode
from tests.properties.cleaning_history import History
from tests.properties.cleaning_steps import PAIRS, STEPS, Append, Clean, EndTransaction, Roll, Step

IS_SOAK = "KOMPAKT_SOAK" in os.environ
ROUNDING = 2
"""The last record stays, and two keys of a few may look like one."""


@dataclass(frozen=True, slots=True)
class Look:
    """Keys are counted: those that are due, or all; stopped at one of the looks at the meter or not."""

    is_everything: bool
    stopped_after: int | None = None


@dataclass(frozen=True, slots=True)
class AppendKeys:
    """A batch with each key of a range."""

    first: int
    count: int


LOOKS = st.builds(Look, st.booleans(), st.none() | st.integers(0, 12))
SOME = st.one_of(
    LOOKS,
    LOOKS,
    st.builds(Append, PAIRS),
    st.builds(Append, PAIRS),
    st.just(Roll()),
    st.just(Clean()),
)
LAST = (
    EndTransaction(10, ControlType.COMMIT),
    EndTransaction(11, ControlType.ABORT),
    Append([(b"a", b"1"), (b"b", b"1"), (b"a", b"2")]),
    Roll(),
)
"""Nothing is undecided at the end, and something is dirty."""


def take_look(keys: CountedKeys, step: Look) -> None:
    left = step.stopped_after

    def stop(_seconds: float) -> bool:
        nonlocal left
        left = None if left is None else left - 1
        return left is not None and left < 0

    with suppress(CleaningAborted):
        keys.look(
            EVERYTHING if step.is_everything else None,
            stop=never_stop if left is None else stop,
        )


def check_within_error(found: Reclaimable, log: CompactedLog) -> None:
    dies = rehearse(log).report.records_by_verdict
    superseded, others = dies["dropped_superseded"], dies["dropped_aborted"]
    slack = 4 * found.superseded_error + ROUNDING
    assert superseded - slack <= found.superseded <= superseded + others + slack


@settings(max_examples=5000 if IS_SOAK else 100, deadline=None)
@given(
    steps=st.lists(STEPS | SOME, min_size=8, max_size=30),
    segment_bytes=st.sampled_from([1, 300, 1000, 1 << 30]),
    mode=st.sampled_from(TRUTHFUL),
    seed=st.integers(0, 1 << 16),
)
def test_what_was_counted_step_by_step_is_what_is_counted_at_once(
    steps: list[Step | Look], segment_bytes: int, mode: SidecarMode, seed: int
) -> None:
    config = replace(CONFIG, segment_bytes=segment_bytes)
    log = CompactedLog(config, sidecars=mode)
    log.sidecar_seed = seed
    history, keys = History(log), CountedKeys(log)
    for step in [*steps, *LAST]:
        if isinstance(step, Look):
            take_look(keys, step)
        else:
            history.take(step)

    found, at_once = keys.look(EVERYTHING), CountedKeys(log)

    assert found == at_once.look(EVERYTHING)
    assert keys.count == at_once.count
    assert found is not None
    check_within_error(found, log)


@settings(max_examples=2000 if IS_SOAK else 40, deadline=None)
@given(
    steps=st.lists(
        st.builds(AppendKeys, st.integers(0, 1000), st.integers(1, 400))
        | st.sampled_from([Roll(), Clean(), Look(is_everything=False)]),
        max_size=15,
    )
)
def test_an_estimate_lies_within_four_times_its_error(
    steps: list[AppendKeys | Clean | Look],
) -> None:
    log = CompactedLog()
    history, keys = History(log), CountedKeys(log)
    for step in [*steps, AppendKeys(0, 10), Roll()]:
        match step:
            case Look():
                take_look(keys, step)
            case AppendKeys(first=first, count=count):
                pairs: list[KeyValue] = [(b"%d" % key, b"v") for key in range(first, first + count)]
                log.append(*pairs)
            case _:
                history.take(step)

    found = keys.look(EVERYTHING)

    assert found is not None
    check_within_error(found, log)
