"""What `kompakt doctor` says about the coordinators' next load."""

from __future__ import annotations

from cli.doctor.coordinator_checkpoints import CoordinatorLoad, coordinator_loads
from cli.doctor.findings import Status, judge_coordinator
from replog.trigger import CompactionSettings
from tests.harness.checkpointed_log import CheckpointedLog
from tests.harness.offsets_model import Commit


def test_the_checkpoints_of_a_topic_are_summed_with_what_follows_them() -> None:
    log = CheckpointedLog()
    for _ in range(20):
        log.play(Commit("a", (0, 1)))
    log.make()
    log.play(Commit("a", (0,)))
    log.reopen(is_clean=True)
    log.fs.rename("data/orders", "data/__consumer_offsets.AAAAAAAAAAAAAAAAAAAAAg")

    (load,) = coordinator_loads(log.fs, "data")

    assert (load.topic, load.checkpoints, load.end_offset_max) == ("__consumer_offsets", 1, 40)
    assert 0 < load.dirty_bytes < 200


def test_a_long_load_is_a_warning() -> None:
    settings = CompactionSettings(replay_ms=200)
    fast = CoordinatorLoad(topic="t", checkpoints=1, checkpoint_bytes=700, replay_ms_max=300)
    slow = CoordinatorLoad(topic="t", replay_ms_max=3000)

    assert judge_coordinator("/data", fast, settings).status is Status.OK
    assert judge_coordinator("/data", slow, settings).status is Status.WARNING
