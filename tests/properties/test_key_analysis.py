"""The counts over the keys of any log are those of a plain model, and what is said of growth is true."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.keys.growth import UNFINISHED, Growth
from cleaner.pacing.settings import CleanerSettings
from protocol.records.control_record import ControlType
from protocol.records.record_batch import Record
from storage.formats.compaction_strategy import Ranking
from tests.harness.compacted_log import CONFIG, CompactedLog
from tests.harness.key_model import analysis_of, counts_of, hottest_of, model_of
from tests.harness.sidecar_mode import SidecarMode
from tests.harness.versioned_history import VersionedHistory
from tests.properties.cleaning_history import History, TinyChunks
from tests.properties.cleaning_steps import CLEANS, STEPS, VALUES, Append, Step, Truncate

IS_SOAK = "KOMPAKT_SOAK" in os.environ
TOP = 4
MANY = st.builds(
    Append,
    st.lists(
        st.tuples(st.none() | st.integers(0, 60).map(lambda number: b"%d" % number), VALUES),
        min_size=1,
        max_size=25,
    ),
    st.sampled_from([-1, 10, 11]),
)
"""Keys for many parts of a tiny table, and records without a key."""


def check(history: History) -> None:
    log = history.log
    log.let_sidecars_happen()
    files = log.files()

    found = analysis_of(log, top=TOP)

    assert log.files() == files, "nothing is changed"
    model = model_of(log, lambda offset: history.written[offset].outcome)
    expected = model.counts()
    assert counts_of(found) == {**expected, "by_records": sorted(expected["by_records"])}
    assert hottest_of(found) == model.hottest(TOP)
    if isinstance(found.growth, Growth):
        check_growth(history, found.growth, {*model.keys})
    else:
        assert found.growth != UNFINISHED or log.log.cleaning_view().has_unfinished_pass


def check_growth(history: History, growth: Growth, on_disk: set[bytes]) -> None:
    """Compare what is said of growth with all that was ever committed, still there or not."""
    committed = [
        each.record
        for _, each in sorted(history.written.items())
        if each.outcome is ControlType.COMMIT and each.record.key is not None
    ]
    before = table(each for each in committed if each.offset < growth.offset)
    now = table(committed)
    gone = {record.offset for record in before.values()} - {
        record.offset for record in history.log.records()
    }
    since = [each for each in committed if each.offset >= growth.offset]
    new = {each.key for each in since if each.key not in before or before[each.key].offset in gone}

    assert all(each.value is None for each in before.values() if each.offset in gone)
    assert growth.records == len(since)
    assert growth.new_keys == len(new)
    assert growth.net_live == live(now) - live(before)
    assert {each.key for each in since} <= on_disk


def table(records: object) -> dict[bytes | None, Record]:
    assert hasattr(records, "__iter__")
    return {record.key: record for record in records}


def live(keys: dict[bytes | None, Record]) -> int:
    return sum(record.value is not None for record in keys.values())


@settings(max_examples=2000 if IS_SOAK else 60, deadline=None)
@given(
    steps=st.lists(
        st.one_of(STEPS, CLEANS, MANY).filter(lambda step: not isinstance(step, Truncate)),
        max_size=16,
    ),
    segment_bytes=st.sampled_from([1, 300, 1 << 30]),
    map_slots=st.sampled_from([16, 1000]),
    sidecars=st.sampled_from([each for each in SidecarMode if each is not SidecarMode.LYING]),
    kind=st.sampled_from([CleanerSettings, TinyChunks]),
)
def test_any_history_is_counted_as_the_model_counts_it(
    steps: list[Step],
    segment_bytes: int,
    map_slots: int,
    sidecars: SidecarMode,
    kind: type[CleanerSettings],
) -> None:
    config = replace(CONFIG, segment_bytes=segment_bytes)
    log = CompactedLog(config, kind(dedupe_buffer_size=24 * map_slots), sidecars=sidecars)
    history = History(log)
    for step in steps:
        history.take(step)
        check(history)


class CountedHistory(VersionedHistory):
    """A history whose records have versions, and whose keys are counted after each step."""

    def check(self) -> None:
        super().check()
        ranks = {each.offset: each for sent in self.sent.values() for each in sent}
        ranking = self.strategy.ranking
        found = analysis_of(self.log, top=TOP)
        open_offsets = {each.offset for sent in self.open.values() for _, each in sent}

        def outcome_of(offset: int) -> ControlType | None:
            if offset in open_offsets:
                return None
            return ControlType.ABORT if offset in self.uncounted else ControlType.COMMIT

        def version_of(offset: int) -> int:
            return ranks[offset].rank(ranking)[0]

        model = model_of(self.log, outcome_of, version_of)
        expected = model.counts()
        assert counts_of(found) == expected
        assert hottest_of(found) == model.hottest(TOP)


@pytest.mark.parametrize("seed", range(100 if IS_SOAK else 4))
@pytest.mark.parametrize("ranking", [Ranking.TIMESTAMP, Ranking.HEADER])
def test_where_records_have_versions_the_highest_one_is_the_last(
    ranking: Ranking, seed: int
) -> None:
    CountedHistory(seed, ranking, map_slots=16).play(40)
