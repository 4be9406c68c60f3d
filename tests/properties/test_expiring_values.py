"""Where values expire, no history loses a newer one, keeps one too long, or brings one back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from cleaner.expiry import sweep
from cleaner.expiry.sweep import Sweep
from cleaner.pool import expiries
from cleaner.pool.expiries import Expiries
from storage.formats.compaction_strategy import Ranking
from storage.log.log import PartitionLog
from tests.harness.expiring_history import ExpiringHistory

SEEDS = 400 if "KOMPAKT_SOAK" in os.environ else 3
STEPS = 60


@pytest.mark.parametrize("ranking", Ranking)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_value_goes_after_its_time_and_nothing_newer_does(seed: int, ranking: Ranking) -> None:
    # With two candidates at a time, sweeps take several rounds.
    ExpiringHistory(seed, ranking, map_slots=16 if seed % 2 else 1000).play(STEPS)


@pytest.mark.parametrize("ranking", Ranking)
def test_a_crash_at_any_operation_of_a_sweep_loses_and_revives_nothing(ranking: Ranking) -> None:
    history = ExpiringHistory(1, ranking, map_slots=16)
    history.play(15)
    while history.open:
        history.end_transaction()
    history.ttl_ms = 1000
    history.log.log.update_config(history.config())
    for _ in range(4):
        history.append()
        history.roll()
    history.log.now_ms += 4000
    assert history.expired_keys()

    assert history.crash_in_every_step_of_a_sweep() > 10


def _append_without_a_last_look(patch: pytest.MonkeyPatch) -> None:
    """What was appended between the proof and the tombstones is not compared."""

    def close_gap(its: Sweep) -> bool:
        its._keys.note_compared(its._log.log_end_offset)
        return True

    patch.setattr(Sweep, "_close_gap", close_gap)


def _compare_only_the_active_segment(patch: pytest.MonkeyPatch) -> None:
    """Later records in sealed segments do not count."""
    patch.setattr(Sweep, "_compare_sealed", lambda *_: None)


def _forget_what_was_deferred(patch: pytest.MonkeyPatch) -> None:
    """A value that an open transaction held is not looked at again when that is aborted."""
    patch.setattr(sweep, "due_at_once", lambda ranges, _offsets: ranges)


def _trust_what_is_out_of_date(patch: pytest.MonkeyPatch) -> None:
    """What is known of a log survives changes of its settings."""
    patch.setattr(expiries, "_basis_of", lambda log: (log,))


def _read_only_what_is_new(patch: pytest.MonkeyPatch) -> None:
    """What was read once is not read again when its time has come."""

    def spans(ranges: Any, *, start: int, end: int, now_ms: int) -> list[tuple[int, int]]:
        first = ranges[-1].end if ranges else start
        return [(first, end)] if first < end else []

    patch.setattr(sweep, "spans_to_read", spans)


def _expire_by_the_wrong_clock(patch: pytest.MonkeyPatch) -> None:
    """Values expire two seconds early."""
    plan = Expiries.plan

    def early(its: Expiries, log: PartitionLog, now_ms: int) -> Any:
        return plan(its, log, now_ms + 2000)

    patch.setattr(Expiries, "plan", early)


def _play_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        for ranking in Ranking:
            ExpiringHistory(seed, ranking, map_slots=16 if seed % 2 else 1000).play(STEPS)


@pytest.mark.parametrize(
    ("plant", "first_seed"),
    [
        (_append_without_a_last_look, 1),
        (_compare_only_the_active_segment, 0),
        (_forget_what_was_deferred, 7),
        (_trust_what_is_out_of_date, 4),
        (_read_only_what_is_new, 1),
        (_expire_by_the_wrong_clock, 0),
    ],
)
def test_the_histories_find_a_planted_bug(
    plant: Callable[[pytest.MonkeyPatch], None], first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`first_seed` only saves time: the first one whose history finds the bug now."""
    plant(monkeypatch)

    with pytest.raises(AssertionError):
        _play_all(range(first_seed, first_seed + 200))
