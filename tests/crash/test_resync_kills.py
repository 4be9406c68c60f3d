"""Partitions that lack tombstones are copied once more while their source is written and cleaned, and
source and mirror are killed meanwhile: the mirror ends with the source's state.

`KOMPAKT_RESYNC_KILLS` sets how many kills there are, `KOMPAKT_RESYNC_KILL_SEED` repeats the choices.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.crash.test_mirror_kills import (
    BROKER,
    PARTITIONS,
    TOPIC,
    check_ends_equal,
    kill,
    mirrored,
    status,
    wait_for_records,
)
from tests.harness.failed_mirrors import SOURCE, fail_mirrors, states
from tests.harness.group_run import until
from tests.harness.keyed_writer import KeyedWriter
from tests.harness.typed_commands import TypedCommands

KILLS = int(os.environ.get("KOMPAKT_RESYNC_KILLS", "60" if "KOMPAKT_SOAK" in os.environ else "3"))
SLOW = 4_096
"""Bytes a second, so that a kill finds the copies half filled."""
SECONDS_BEFORE_KILL_MAX = 4.0


@pytest.mark.crash
@pytest.mark.parametrize("compaction", ["off", "on"])
def test_whatever_is_killed_in_a_resync_the_mirror_ends_with_the_sources_state(
    tmp_path: Path, compaction: str
) -> None:
    seed = int(os.environ.get("KOMPAKT_RESYNC_KILL_SEED", random.randrange(1 << 16)))
    choices = random.Random(seed)
    (tmp_path / "seed").write_text(f"KOMPAKT_RESYNC_KILL_SEED={seed}")
    with mirrored(tmp_path, compaction, BROKER | SOURCE) as (source, target, typed):
        with KeyedWriter(
            source.bootstrap_servers, TOPIC, partitions=PARTITIONS, seed=seed
        ) as writer:
            wait_for_records(writer, 200)
            for _ in range(KILLS):
                wait_until_copied(typed)
                fail_mirrors(source, target, TOPIC, PARTITIONS)
                typed.told("replica", "alter", "dr", "--bytes-per-second", str(SLOW))
                typed.told("replica", "resync", "dr")
                time.sleep(choices.uniform(0, SECONDS_BEFORE_KILL_MAX))
                kill(choices.choice((source, target)))
                typed.told("replica", "alter", "dr", "--bytes-per-second", "0")
                resync_what_has_failed(typed)
        check_ends_equal(source, target, typed, writer)


def wait_until_copied(typed: TypedCommands) -> None:
    until(
        "all partitions are copied",
        lambda: states(typed) == ["copying"] * PARTITIONS,
        lambda: str(status(typed)),
    )


def resync_what_has_failed(typed: TypedCommands) -> None:
    """Ask once more, until all are copied: a kill may have come before the source knew of a resync."""

    def are_copied() -> bool:
        found = states(typed)
        if "failed" in found:
            typed.run("replica", "resync", "dr")
        return found == ["copying"] * PARTITIONS

    until("all partitions are copied again", are_copied, lambda: str(status(typed)))
