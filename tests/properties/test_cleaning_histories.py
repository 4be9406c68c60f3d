"""Whatever happens to a compacted log, what a consumer must be able to rely on holds.

`test_cleaning_model.py` foretells every record that whole passes leave. Here passes end early, as they
are stopped or cut off by a crash; key sidecars are kept or not, go missing, are damaged, or lie;
transactions commit, abort and stay open; producers send again what they have sent. So what must hold is
said of any state, not foretold.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from cleaner.pacing.settings import CleanerSettings
from protocol.records.control_record import ControlType
from tests.harness.compacted_log import CONFIG, CompactedLog
from tests.harness.sidecar_mode import SidecarMode
from tests.properties.cleaning_history import History, NarrowWindows, TinyChunks
from tests.properties.cleaning_steps import (
    RETENTION_MS,
    STEPS,
    Append,
    Clean,
    EndTransaction,
    Restart,
    Roll,
    SendAgain,
    Step,
)


def play(
    steps: Iterable[Step], segment_bytes: int, sidecars: SidecarMode, kind: type[CleanerSettings]
) -> None:
    config = replace(CONFIG, segment_bytes=segment_bytes)
    played = History(CompactedLog(config, kind(), sidecars=sidecars))
    for step in steps:
        played.take(step)
        played.check()
    played.check_every_start_offset()


@settings(max_examples=5000 if "KOMPAKT_SOAK" in os.environ else 150, deadline=None)
@given(
    steps=st.lists(STEPS, max_size=30),
    segment_bytes=st.sampled_from([1, 300, 1 << 30]),
    sidecars=st.sampled_from(SidecarMode),
    kind=st.sampled_from([CleanerSettings, TinyChunks, NarrowWindows]),
)
@example(
    steps=[
        Append([(b"a", b"1")], 10), Roll(), Clean(), EndTransaction(10, ControlType.ABORT),
        Append([(b"a", None)], 11), EndTransaction(11, ControlType.COMMIT), Roll(), Clean(),
        Append([(b"b", b"1")], 10), Roll(), Clean(RETENTION_MS), Restart(is_clean=False),
        SendAgain(11),
    ],
    segment_bytes=300,
    sidecars=SidecarMode.KEPT,
    kind=TinyChunks,
)  # fmt: skip
@example(
    steps=[
        Append([(b"a", b"1")], 1), Append([(b"a", b"2")], 10),
        EndTransaction(10, ControlType.COMMIT), Append([(b"a", b"3")]), Clean(),
        Restart(is_clean=False, has_sound_snapshots=False),
    ],
    segment_bytes=300,
    sidecars=SidecarMode.KEPT,
    kind=CleanerSettings,
)  # fmt: skip
def test_any_history_keeps_what_consumers_and_producers_rely_on(
    steps: list[Step], segment_bytes: int, sidecars: SidecarMode, kind: type[CleanerSettings]
) -> None:
    play(steps, segment_bytes, sidecars, kind)
