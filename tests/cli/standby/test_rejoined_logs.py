"""The logs that only the old primary has records of, when it follows the new one."""

from __future__ import annotations

from pathlib import Path

from server.topics.topic import Topic
from storage.files.paths import topic_directory
from storage.log.log import PartitionLog
from tests.harness.on_disk_reader import read_log
from tests.harness.served_broker import ServedBroker, batch_of, serving_broker
from tests.harness.standby_broker import RunningStandby, running_standby, serving_source

CLUSTER = "bm90LWEtcmVhbC1jbHVzdA"


async def old_primary_with(tmp_path: Path, records: int) -> Topic:
    """Run the old primary once: its log of the topic `t` has these records."""
    async with serving_broker(tmp_path / "old", cluster_id=CLUSTER, node_id="2") as old:
        topic = await old.create("t", cleanup_policy="delete")
        await old.produce("t", batch_of(records, value=b"old"))
        return topic


async def create_at_the_new_primary(new: ServedBroker, topic: Topic) -> PartitionLog:
    """Returns the log of the same topic, which leads above the old primary's."""
    created = await new.broker.topics.create("t", partitions_count=1, topic_id=topic.id)
    assert isinstance(created, Topic), created
    log = new.log("t")
    log.lead_above(log.leader_epoch)
    return log


async def delete_all(new: ServedBroker) -> None:
    await new.produce("t", batch_of(5, value=b"gone"))
    log = new.log("t")
    log.delete_records(log.high_watermark)
    await new.produce("t", batch_of(1, value=b"after"))


def values(directory: Path) -> list[bytes | None]:
    return [record[3] for record in read_log(directory).records()]


async def copied(standby: RunningStandby) -> None:
    await standby.until(lambda it: it["mirrors"]["by_state"] == {"copying": 1})
    await standby.until_ready()


async def test_a_copy_that_lags_behind_deleted_records_starts_over_beside_a_log_put_aside(
    tmp_path: Path,
) -> None:
    topic = await old_primary_with(tmp_path, 3)
    logs = tmp_path / "old" / topic_directory("t", topic.id)
    async with serving_source(tmp_path / "new", cluster_id=CLUSTER) as new:
        await create_at_the_new_primary(new, topic)
        await new.produce("t", batch_of(2, value=b"new"))
        async with running_standby(new, tmp_path / "old", rejoins=True) as standby:
            await copied(standby)
        assert values(logs / "0.aside.3") == [b"old"] * 3

        await delete_all(new)
        async with running_standby(new, tmp_path / "old") as standby:
            await copied(standby)

    assert values(logs / "0") == [b"after"]
    assert [each.name for each in sorted(logs.iterdir())] == ["0", "0.aside.3"]


async def test_records_of_its_own_are_put_aside_though_the_new_primary_has_deleted_as_many(
    tmp_path: Path,
) -> None:
    """The new primary then remembers no epoch of these offsets, so both logs seem to be equal there."""
    topic = await old_primary_with(tmp_path, 3)
    logs = tmp_path / "old" / topic_directory("t", topic.id)
    async with serving_source(tmp_path / "new", cluster_id=CLUSTER) as new:
        log = await create_at_the_new_primary(new, topic)
        await new.produce("t", batch_of(3, value=b"new"))
        log.delete_records(log.high_watermark)
        await new.produce("t", batch_of(1, value=b"after"))
        async with running_standby(new, tmp_path / "old", rejoins=True) as standby:
            await copied(standby)

    assert values(logs / "0") == [b"after"]
    assert values(logs / "0.aside.3") == [b"old"] * 3
