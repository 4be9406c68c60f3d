"""Where records have versions, no history loses a last value or brings an older one back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import pytest

from cleaner.passes.dirty_section import DirtySection
from cleaner.passes.mark import Marked
from cleaner.passes.memory import marks_bytes
from cleaner.passes.rewrite import Rewriting
from cleaner.passes.verify_pass import VerificationFailed
from storage.formats.compaction_strategy import Ranking
from storage.formats.config_property import LONG_MAX
from tests.harness.versioned_history import VersionedHistory

SEEDS = 400 if "KOMPAKT_SOAK" in os.environ else 25
STEPS = 60


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("ranking", [Ranking.TIMESTAMP, Ranking.HEADER])
def test_a_history_keeps_the_record_of_each_key_that_outranks_the_others(
    ranking: Ranking, seed: int
) -> None:
    VersionedHistory(seed, ranking).play(STEPS)


@pytest.mark.parametrize(
    ("ranking", "seed"),
    [
        (Ranking.TIMESTAMP, 49),
        (Ranking.TIMESTAMP, 227),
        (Ranking.HEADER, 111),
        (Ranking.HEADER, 375),
    ],
)
def test_a_pass_that_ends_early_and_with_a_lost_record_is_not_repeated_at_once(
    ranking: Ranking, seed: int
) -> None:
    """It ends before an undecided transaction, so its clock for horizons is before that of the plan."""
    VersionedHistory(seed, ranking).play(STEPS)


@pytest.mark.parametrize("seed", range(SEEDS // 5))
def test_the_keys_may_come_in_parts(seed: int) -> None:
    VersionedHistory(seed, Ranking.HEADER, map_slots=16).play(STEPS)


@pytest.mark.parametrize("seed", range(SEEDS // 12))
@pytest.mark.parametrize("ranking", [Ranking.TIMESTAMP, Ranking.HEADER])
def test_a_crash_at_any_operation_of_a_pass_loses_and_resurrects_nothing(
    ranking: Ranking, seed: int
) -> None:
    history = VersionedHistory(seed, ranking)
    history.play(STEPS)
    while history.open:
        history.end_transaction()
    for _ in range(4):
        history.append()
        history.roll()

    assert history.crash_everywhere() > 10


def _forget_winners(patch: pytest.MonkeyPatch) -> None:
    """Tombstones go in the pass that drops what they outrank."""
    patch.setattr(
        "cleaner.passes.mark.new_marks",
        lambda entries, _strategy: Marked(bytearray(marks_bytes(entries))),
    )


def _ignore_what_lies_above(patch: pytest.MonkeyPatch) -> None:
    """Tombstones go although records that they outrank lie above the pass's end."""
    patch.setattr("cleaner.passes.clean.at_horizon_clock", lambda plan, _end_offset: plan)
    patch.setattr("cleaner.rules.pick.uncovered_since_ms", lambda *_: LONG_MAX)


def _pass_over_a_lost_tail(patch: pytest.MonkeyPatch) -> None:
    """A record that lost, but was the last one of a pass, stays for ever."""
    patch.setattr(Rewriting, "clean_offset", property(lambda rewriting: rewriting._end_offset))


def _judge_what_was_deleted(patch: pytest.MonkeyPatch) -> None:
    """Records below the log start win over readable ones."""
    patch.setattr(DirtySection, "map_offset", property(lambda section: section.start_offset))


def _raise_nothing(patch: pytest.MonkeyPatch) -> None:
    """Dirty records win over clean ones that outrank them."""
    patch.setattr("cleaner.passes.key_parts.raise_keys", lambda *_, **__: None)


def _play_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        VersionedHistory(seed, Ranking.HEADER).play(STEPS)


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (_forget_winners, AssertionError),
        (_ignore_what_lies_above, AssertionError),
        (_pass_over_a_lost_tail, AssertionError),
        (_judge_what_was_deleted, VerificationFailed),
        (_raise_nothing, VerificationFailed),
    ],
)
def test_the_histories_find_a_planted_bug(
    plant: Callable[[pytest.MonkeyPatch], None],
    found: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)

    with pytest.raises(found):
        _play_all(range(200))
