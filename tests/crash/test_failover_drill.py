"""A standby takes over while clients of all kinds continue, and the old primary comes back.

Two sites, each with two disks. Clients know both addresses: an idempotent producer, one of a compacted
topic with tombstones, a copier in transactions, open transactions, members of a classic group and of one
of the consumer protocol, groups that only commit, and topics that come and go. What the old primary has
on its disks is the truth; the promotion's report says up to where each partition was copied.

`KOMPAKT_FAILOVERS` sets how many precede, with kills of every process at random moments;
`KOMPAKT_FAILOVER_SEED` repeats the choices.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.harness.failover_drill import Drill

FAILOVERS = int(os.environ.get("KOMPAKT_FAILOVERS", "20" if "KOMPAKT_SOAK" in os.environ else "0"))


def seed_of(tmp_path: Path) -> int:
    seed = int(os.environ.get("KOMPAKT_FAILOVER_SEED", random.randrange(1 << 16)))
    (tmp_path / "seed").write_text(f"KOMPAKT_FAILOVER_SEED={seed}")
    return seed


@pytest.mark.crash
def test_a_forced_failover_lacks_only_what_it_lists_and_the_failback_nothing(
    tmp_path: Path,
) -> None:
    with Drill(tmp_path, seed_of(tmp_path)) as drill:
        for _ in range(FAILOVERS):
            drill.work()
            drill.disturb()
            drill.take_over_somehow()
            drill.rejoin_somehow()
        drill.work()
        drill.take_over_by_force()
        drill.rejoin()
        drill.work()
        drill.take_over_cleanly()
