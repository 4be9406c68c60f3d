"""A broker under the whole load with three standbys, which follow its metadata, groups and transactions.

Topics come and go, offsets are committed, transactions end; each process is killed at random, and one
standby is away until it must install a snapshot and checkpoints, twice in a row. At the end all digests
are equal.

KOMPAKT_SOAK=1 commits 100,000 offsets in 100 groups; without it there are fewer.
`KOMPAKT_STANDBY_KILLS` sets how many kills there are, `KOMPAKT_STANDBY_SEED` repeats the choices.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

from tests.crash.test_standby_copy_kills import SETTINGS, Load, clean, installs
from tests.crash.test_standby_copy_kills import assert_equal_now as assert_coordinators_equal
from tests.crash.test_standby_kills import SNAPSHOTS_OFTEN, Admin, standbys
from tests.crash.test_standby_kills import assert_equal_now as assert_metadata_equal
from tests.harness.broker_process import BrokerProcess
from tests.harness.standby_process import StandbyProcess, digest_in

IS_SOAK = "KOMPAKT_SOAK" in os.environ
GROUPS, PARTITIONS = (100, 1_000) if IS_SOAK else (8, 100)
KILLS = int(os.environ.get("KOMPAKT_STANDBY_KILLS", "40" if IS_SOAK else "6"))


def test_whatever_is_killed_or_away_three_standbys_end_with_the_leaders_state(
    tmp_path: Path,
) -> None:
    seed = int(os.environ.get("KOMPAKT_STANDBY_SEED", random.randrange(1 << 16)))
    rng = random.Random(seed)
    (tmp_path / "seed").write_text(f"KOMPAKT_STANDBY_SEED={seed}")
    with (
        BrokerProcess(tmp_path / "broker", {**SETTINGS, **SNAPSHOTS_OFTEN}) as broker,
        standbys(tmp_path, broker, 3) as copies,
    ):
        admin = Admin(broker)
        load = Load(broker, seed, groups=GROUPS, partitions=PARTITIONS)
        load.fill()
        for _ in range(KILLS):
            kill_one(rng, broker, copies, admin, load)
        for _ in range(2):
            leave_behind(copies[0], broker, admin, load)
        load.run(3)
        admin.change(2)
        assert_metadata_equal(broker, *copies)
        assert_coordinators_equal(*copies)
    expected = digest_in(broker.data_dir / "metadata")
    assert {each.digest() for each in copies} == {expected}


def kill_one(
    rng: random.Random,
    broker: BrokerProcess,
    copies: list[StandbyProcess],
    admin: Admin,
    load: Load,
) -> None:
    """Kill any of the processes while the load continues where it can."""
    admin.change(rng.randrange(1, 3))
    load.run(rng.randrange(1, 6))
    every: list[BrokerProcess | StandbyProcess] = [broker, *copies]
    killed = rng.choice(every)
    killed.kill()
    if killed is not broker:
        admin.change(rng.randrange(2))
        load.run(rng.randrange(5))
        if rng.random() < 0.5:
            clean(broker)
    killed.start()


def leave_behind(standby: StandbyProcess, broker: BrokerProcess, admin: Admin, load: Load) -> None:
    """Stop a standby until the leader no longer has what it needs; it must install a snapshot and
    checkpoints."""
    assert_metadata_equal(broker, standby)
    assert_coordinators_equal(standby)
    assert standby.stop() == 0
    admin.change(6)
    load.run(20)
    clean(broker)
    load.run(2)
    standby.start()
    assert_metadata_equal(broker, standby)
    assert_coordinators_equal(standby)
    found = standby.status()
    assert found is not None
    assert found["installs"] == 1
    assert installs(standby) > 0
