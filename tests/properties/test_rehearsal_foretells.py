"""Whatever has happened to a log, a rehearsal says to the byte what the pass then does.

Every pass of a drawn history is rehearsed first: records dead by reason and segment, bytes read and
written, groups, manifest rows, sidecars, parts of the map.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.pacing.meter import CleaningAborted
from cleaner.pacing.settings import CleanerSettings
from protocol.wire.numbers import Offset
from tests.harness.compacted_log import CONFIG, CompactedLog
from tests.harness.rehearsal import check_prediction
from tests.harness.sidecar_mode import TRUTHFUL, SidecarMode
from tests.properties.cleaning_history import History, NarrowWindows, TinyChunks
from tests.properties.cleaning_steps import (
    APPENDS,
    ENDS,
    RETENTION_MS,
    VALUES,
    Append,
    Clean,
    CrashInPass,
    Restart,
    Roll,
    Step,
)


@dataclass(frozen=True, slots=True)
class Foretold:
    """A pass after so much time, with so small a map, that is rehearsed first."""

    after_ms: int = 0
    map_slots: int = 1000


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    """So many of the oldest offsets go: by DeleteRecords, or retention."""

    offsets_count: int


UNKEYED = st.builds(
    Append, st.lists(st.tuples(st.just(None) | st.just(b"a"), VALUES), min_size=1, max_size=3)
)
FORETOLD = st.builds(
    Foretold, st.sampled_from([0, 1, RETENTION_MS]), st.sampled_from([16, 20, 1000])
)
STEPS = st.one_of(
    APPENDS,
    APPENDS,
    UNKEYED,
    ENDS,
    FORETOLD,
    st.just(Roll()),
    st.builds(DeleteRecords, st.integers(1, 6)),
    st.builds(Clean, st.just(0), st.just(1000), st.integers(0, 30)),
    st.builds(CrashInPass, st.integers(1, 40)),
    st.builds(Restart, st.booleans(), st.booleans()),
)


def play(history: History, steps: list[Step | Foretold | DeleteRecords]) -> None:
    log = history.log
    for step in [*steps, Foretold(), Foretold(), Foretold(RETENTION_MS)]:
        match step:
            case Foretold():
                log.now_ms += step.after_ms
                log.settings = replace(log.settings, dedupe_buffer_size=24 * step.map_slots)
                with suppress(CleaningAborted):
                    # A sidecar was found damaged behind the first swap.
                    check_prediction(log)
            case DeleteRecords(offsets_count=count):
                offset = min(log.log.log_start_offset + count, log.log.high_watermark)
                log.log.delete_records(Offset(offset))
            case _:
                history.take(step)


@settings(max_examples=5000 if "KOMPAKT_SOAK" in os.environ else 150, deadline=None)
@given(
    steps=st.lists(STEPS, max_size=25),
    segment_bytes=st.sampled_from([1, 300, 1000, 1 << 30]),
    policy=st.sampled_from([("compact",), ("compact", "delete")]),
    unkeyed=st.sampled_from(["drop", "keep"]),
    mode=st.sampled_from(TRUTHFUL),
    verify=st.booleans(),
    kind=st.sampled_from([CleanerSettings, TinyChunks, NarrowWindows]),
    seed=st.integers(0, 1 << 16),
)
def test_any_history_is_foretold_by_segment_and_reason(
    steps: list[Step | Foretold | DeleteRecords],
    segment_bytes: int,
    policy: tuple[str, ...],
    unkeyed: str,
    mode: SidecarMode,
    verify: bool,
    kind: type[CleanerSettings],
    seed: int,
) -> None:
    config = replace(
        CONFIG,
        segment_bytes=segment_bytes,
        cleanup_policy=policy,
        compaction_unkeyed_records=unkeyed,
        retention_ms=-1,
    )
    log = CompactedLog(config, kind(verify=verify), sidecars=mode)
    log.sidecar_seed = seed
    play(History(log), steps)
