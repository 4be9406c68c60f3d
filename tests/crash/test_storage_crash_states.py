"""Stop a log at every write, rename, removal and sync, lose what was not synced, and recover it.

Random workloads of append, sync, roll, checkpoint, swap, key sidecars, retention, DeleteRecords,
truncate and restart run on a disk in memory. After each operation of the disk the machine "loses power"
in several ways: everything unsynced is gone, nothing is, or some sectors and names are. The log is
opened from what is left, and must hold

  - all that was acknowledged (synced) and, beyond it, only what was appended, in order, unmoved;
  - of a swap, a truncation or a move of its start that was under way, all or nothing;
  - the last batches of every idempotent producer it still has, and its leader epochs;
  - no file that its manifest does not know, and nothing that `dump-log --verify` calls an error;
  - no wrong key sidecar of a segment, although sidecars are never synced;

and a second crash right after the recovery changes nothing.

KOMPAKT_CRASH_STATES sets how many states are tried, KOMPAKT_CRASH_SEED where the seeds begin. With the
seed that a failure names and no more states than that history has, the same failure comes again.
`workload.py` has the histories, `sweep.py` the crashes, `expected.py` what must be left.
"""

from __future__ import annotations

import os
import sys

import pytest

from tests.crash.sweep import Sweep

STATES = int(os.environ.get("KOMPAKT_CRASH_STATES", "4000"))
SEED = int(os.environ.get("KOMPAKT_CRASH_SEED", "1"))


def test_every_crash_state_recovers_what_was_acknowledged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    states, nested, sidecars, seed = 0, 0, 0, SEED
    while states < STATES:
        sweep = Sweep(seed, states_max=STATES - states)
        states += sweep.run()
        nested += sweep.nested_states
        sidecars += sweep.sidecars
        seed += 1
    with capsys.disabled():
        sys.stdout.write(
            f"\n{states} crash states, and {nested} in the middle of a recovery,"
            f" seeds {SEED} to {seed - 1}; {sidecars} whole key sidecars\n"
        )
    assert sidecars > states // 20
