"""Crash the broker at every operation of a lease: while others clean, while it takes, verifies, swaps.

What holds after a crash is what holds after one of a local pass (`test_cleaning_crash_states.py`), to
the same entries; and a start leaves nothing of the lease.
"""

from __future__ import annotations

import pytest

from cleaner.remote.commit import ResultRefused
from protocol.records.record_batch import Codec
from tests.crash.test_cleaning_crash_states import Scenario, Sweep, entries_of
from tests.harness.compacted_log import DIRECTORY
from tests.harness.remote_cleaning import Executor, RemotelyCleaned, output_path, plan_for_others
from tests.harness.sidecar_mode import SidecarMode

SCENARIOS = [
    pytest.param(Scenario(batches_count=12, codec=Codec.LZ4, seed=1), id="compressed"),
    pytest.param(
        Scenario(batches_count=12, tombstones=True, tombstones_are_due=True, seed=3),
        id="tombstones_due",
    ),
    pytest.param(
        Scenario(batches_count=12, sidecars=SidecarMode.OFF, tombstones=True, seed=10),
        id="sidecars_off",
    ),
    pytest.param(
        Scenario(batches_count=10, transactions=True, tombstones=True, seed=7), id="transactions"
    ),
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_crash_at_any_operation_of_a_lease_loses_and_resurrects_nothing(
    scenario: Scenario,
) -> None:
    sweep = Sweep(scenario.build(kind=RemotelyCleaned))

    sweep.run()

    assert sweep.states_count > 200
    assert entries_of(sweep.log.log) == sweep.after


def test_a_crash_while_a_result_is_thrown_away_loses_nothing() -> None:
    """Its last group's file is damaged, so all that was taken goes again."""
    log = Scenario(batches_count=12, tombstones=True, seed=2).build(kind=RemotelyCleaned)
    assert isinstance(log, RemotelyCleaned)
    sweep = Sweep(log)
    plan = log.plan(requested=False)
    remote = plan_for_others(log.fs, plan)
    result = Executor(log.fs, remote).run()
    assert len(result.groups) > 1
    log.fs.overwrite(output_path(remote, result.groups[-1]), 30, b"\xff")

    log.fs.on_operation = lambda action, path: sweep.crash_here()
    with pytest.raises(ResultRefused, match="CRC"):
        log.commit(plan, result)
    log.fs.on_operation = None

    assert sweep.states_count > 20
    assert entries_of(log.log) == sweep.before
    assert not [name for name in log.fs.list(DIRECTORY) if name.endswith(".cleaned")]
