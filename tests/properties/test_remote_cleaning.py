"""A log that others clean, each task in attempts that never meet, is the log that its broker cleans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.pacing.settings import CleanerSettings
from tests.harness.compacted_log import CONFIG, SETTINGS, CompactedLog
from tests.harness.remote_cleaning import RemotelyCleaned
from tests.harness.sidecar_mode import SidecarMode
from tests.properties import test_cleaning_model as plain
from tests.properties import test_transaction_cleaning as transactional


class CleanedTwice(RemotelyCleaned):
    """Every task runs twice; one of its attempts counts."""

    attempts = 2


SEGMENT_BYTES = st.sampled_from([1, 300, 1 << 20])
MODES = st.sampled_from(
    (SidecarMode.KEPT, SidecarMode.OFF, SidecarMode.MISSING, SidecarMode.DAMAGED)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(plain.STEPS, max_size=25), SEGMENT_BYTES, MODES)
def test_a_log_that_others_clean_is_left_as_its_broker_leaves_it(
    steps: Sequence[plain.Step], segment_bytes: int, sidecars: SidecarMode
) -> None:
    local = plain.History(1 << 20, SidecarMode.KEPT, CompactedLog().settings)
    other = plain.History(1, SidecarMode.KEPT, CompactedLog().settings)
    other.log = CleanedTwice(replace(CONFIG, segment_bytes=segment_bytes), sidecars=sidecars)

    for step in [*steps, plain.Clean(0), plain.Clean(CONFIG.delete_retention_ms)]:
        local.take(step)
        other.take(step)
        check_same(local.log, other.log)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(transactional.STEPS, min_size=12, max_size=50),
    st.sampled_from([300, 1 << 20]),
    MODES,
    st.sampled_from((SETTINGS, transactional.SMALL_MAP)),
)
def test_a_log_with_transactions_that_others_clean_is_left_as_its_broker_leaves_it(
    steps: list[object], segment_bytes: int, sidecars: SidecarMode, cleaner: CleanerSettings
) -> None:
    config = replace(CONFIG, segment_bytes=segment_bytes)
    local = transactional.History(CompactedLog())
    other = transactional.History(CleanedTwice(config, cleaner, sidecars=sidecars))

    for step in [
        *steps,
        transactional.Clean(0),
        transactional.Clean(CONFIG.delete_retention_ms),
    ]:
        local.do(step)
        other.do(step)
        other.check()
        check_same(local.log, other.log)


def check_same(local: CompactedLog, other: CompactedLog) -> None:
    assert other.headers() == local.headers()
    assert other.records() == local.records()
    assert other.log.clean_offset == local.log.clean_offset
