"""Whatever happens to a log, its table digest is that of all that was ever committed to it.

The oracle is plain Python over every record that was written, so no pass, crash or restart has changed
it: not by what it dropped as superseded, aborted or without a key, nor by a tombstone that went.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.pacing.settings import CleanerSettings
from protocol.records.control_record import ControlType
from protocol.records.record_batch import Record
from protocol.wire.numbers import Offset
from tests.harness.compacted_log import CONFIG, CompactedLog
from tests.harness.sidecar_mode import SidecarMode
from tests.harness.table_digest import digest_of, live_keys, table_digest
from tests.properties.cleaning_history import History, NarrowWindows, TinyChunks
from tests.properties.cleaning_steps import (
    APPENDS,
    CLEANS,
    STEPS,
    VALUES,
    Append,
    Step,
    Truncate,
)

UNKEYED = st.builds(
    Append, st.lists(st.tuples(st.just(None) | st.just(b"a"), VALUES), min_size=1, max_size=3)
)


def committed(history: History) -> list[Record]:
    """All that was ever committed below the last stable offset, in offset order."""
    stable = history.log.log.last_stable_offset
    return [
        each.record
        for at, each in sorted(history.written.items())
        if each.outcome is ControlType.COMMIT and at < stable
    ]


def check(history: History) -> None:
    history.log.let_sidecars_happen()
    files = history.log.files()
    found, records = digest_of(history.log), committed(history)

    assert history.log.files() == files, "nothing is changed"
    assert (found.keys, found.digest) == (live_keys(records), table_digest(records))


def play(history: History, steps: Iterable[Step]) -> None:
    for step in steps:
        history.take(step)
        check(history)


@settings(max_examples=3000 if "KOMPAKT_SOAK" in os.environ else 100, deadline=None)
@given(
    steps=st.lists(
        st.one_of(STEPS, CLEANS, UNKEYED).filter(lambda step: not isinstance(step, Truncate)),
        max_size=20,
    ),
    segment_bytes=st.sampled_from([1, 300, 1 << 30]),
    map_slots=st.sampled_from([16, 1000]),
    sidecars=st.sampled_from(SidecarMode),
    kind=st.sampled_from([CleanerSettings, TinyChunks, NarrowWindows]),
)
def test_no_history_changes_the_digest_of_what_was_committed(
    steps: list[Step],
    segment_bytes: int,
    map_slots: int,
    sidecars: SidecarMode,
    kind: type[CleanerSettings],
) -> None:
    config = replace(CONFIG, segment_bytes=segment_bytes)
    settings_ = kind(dedupe_buffer_size=24 * map_slots)
    play(History(CompactedLog(config, settings_, sidecars=sidecars)), steps)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.one_of(APPENDS, UNKEYED), min_size=1, max_size=8), data=st.data())
def test_a_digest_up_to_any_end_is_that_of_what_was_committed_below_it(
    steps: list[Step], data: st.DataObject
) -> None:
    history = History(CompactedLog())
    for step in steps:
        history.take(step)
    log = history.log.log
    start = data.draw(st.integers(0, log.last_stable_offset))
    end = data.draw(st.integers(start, log.last_stable_offset))
    log.delete_records(Offset(start))

    found = digest_of(history.log, end)

    assert (found.start_offset, found.end_offset) == (start, end)
    assert found.digest == table_digest(committed(history), start, end)
