"""Crash a pass that leaves certificates at every operation: no swap is ever without its certificate.

After each crash
    - each segment that a pass wrote, and that the manifest lists, has an entry in the ledger;
    - the next start settles the pass: the groups that it calls swapped are in the manifest, the groups
      that it calls not swapped are not, and no group is unknown;
    - then nothing is wrong with the ledger, and each digest is that of its segment.
"""

from __future__ import annotations

import pytest

from storage.ledger.ledger_settling import names_of
from tests.crash.test_cleaning_crash_states import Scenario, Sweep
from tests.harness.ledgers import CertifiedLog, entries_of, label, ledger_on, verified
from tests.harness.memory_fs import Loss, MemoryFileSystem

SCENARIOS = [
    pytest.param(Scenario(batches_count=12, segment_bytes=1, seed=5), id="one_segment_a_group"),
    pytest.param(
        Scenario(batches_count=15, tombstones=True, tombstones_are_due=True, seed=3),
        id="two_passes",
    ),
]


class LedgerSweep(Sweep):
    """A sweep that looks at the ledger, too."""

    settled = 0
    unswapped = 0

    def check(self, fs: MemoryFileSystem) -> None:
        copy = fs.after_crash(Loss.NOTHING, self.random)
        log = self.open(copy)
        listed = {(each.base_offset, each.file_version) for each in log.segments}
        cleaned = {
            (each.base_offset, each.file_version) for each in log.segments if each.row().is_cleaned
        }
        certified = {
            name
            for entry in entries_of(copy)
            if entry.kind == "group"
            for name in names_of(entry.members["outputs"])
        }
        assert cleaned <= certified

        ledger_on(copy).open()

        entries = entries_of(copy)
        groups = {each.number: each.members for each in entries if each.kind == "group"}
        for end in (each for each in entries if each.kind == "settled"):
            self.settled += 1
            self.unswapped += len(end.members["not_swapped"])
            assert not end.members["unknown"]
            for number in end.members["swapped"]:
                assert names_of(groups[number]["outputs"]) <= listed
            for number in end.members["not_swapped"]:
                assert not names_of(groups[number]["outputs"]) & listed
        report = verified(copy)
        assert report.is_sound, report.findings
        assert report.recomputed == report.segments == len(cleaned)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_crash_at_any_operation_leaves_no_swap_that_the_ledger_does_not_know(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The harness's logs are in directories without their topic's id.
    monkeypatch.setattr(
        "storage.ledger.ledger_settling.topic_directory", lambda topic, topic_id: topic
    )
    log = scenario.build(kind=CertifiedLog)
    label(log.fs)
    log.fs.sync_directory("data")
    sweep = LedgerSweep(log, torn_states=1)

    sweep.run()

    assert sweep.states_count > 100
    assert sweep.settled > 10
    assert sweep.unswapped > 0
    assert verified(log.fs).is_sound
