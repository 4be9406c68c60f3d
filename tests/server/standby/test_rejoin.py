"""A primary's directory becomes a standby's: its topics are mirrors, and what only it has is kept."""

from __future__ import annotations

import uuid

import pytest

from server.metadata.store import Delete, Put
from server.replication.link_spec import STANDBY_LINK
from server.runtime.executors import Executor
from server.standby.rejoin import as_mirrors, begin_rejoin, has_led, read_rejoin
from server.standby.taking_over import taking_over
from server.topics.keys import TOPICS, topic_value
from server.topics.mirrors import COMPACTION, LINK, SOURCE_ID
from server.topics.start import ClusterTopic
from server.topics.stores import open_stores
from storage.files.errors import DamagedFile, FormatFromTheFuture
from storage.files.paths import REJOIN, topic_directory, topic_id_text
from storage.log.directory_start import make_durably
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.topics_world import open_world
from tests.server.standby.test_taking_over import SETTINGS

OFFSETS_TOPIC = "__consumer_offsets"
ORDERS = uuid.UUID(int=7)


def topic(name: str, **overrides: str) -> ClusterTopic:
    return ClusterTopic(name=name, id=ORDERS, partitions_count=3, overrides=overrides)


def test_a_topic_becomes_a_mirror_of_itself_with_its_id_and_its_properties() -> None:
    (put,) = as_mirrors([topic("orders", retention="1")])
    own = {LINK: STANDBY_LINK, SOURCE_ID: topic_id_text(ORDERS), COMPACTION: "on"}
    value = topic_value(ORDERS, 3, {"retention": "1", **own})
    assert put == Put(key=f"{TOPICS}orders", value=value)


def test_a_mirror_of_another_cluster_becomes_one_of_the_new_primary() -> None:
    (put,) = as_mirrors([topic("orders", **{LINK: "dr", SOURCE_ID: "A" * 22, COMPACTION: "off"})])
    assert as_mirrors([topic("orders")]) == [put]


def test_the_coordinators_topics_are_no_topics_any_longer() -> None:
    names = [OFFSETS_TOPIC, "__transaction_state"]
    assert as_mirrors(map(topic, names)) == [Delete(key=TOPICS + each) for each in names]


def test_a_directory_has_led_from_the_beginning_of_its_rejoin_on() -> None:
    disk = MemoryFileSystem()
    disk.make_directory("/a")
    assert not has_led(disk, "/a")
    begin_rejoin(disk, "/a")
    assert has_led(disk, "/a")


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", DamagedFile),
        (b'{"version":"x"}', DamagedFile),
        (b"\xff", DamagedFile),
        (b'{"version":2}', FormatFromTheFuture),
    ],
)
def test_a_file_that_cannot_be_read_ends_the_start(content: bytes, error: type[Exception]) -> None:
    disk = MemoryFileSystem()
    disk.make_directory("/a")
    disk.replace_durably(f"/a/{REJOIN}", content)
    with pytest.raises(error):
        read_rejoin(disk, "/a")


async def rejoin(disk: MemoryFileSystem) -> None:
    """Let the directory become a standby's, as a start does."""
    begin_rejoin(disk, "/a")
    make_durably(disk, "/a/standby")
    executor = Executor("upkeep", threads=1)
    found = await taking_over(disk, ("/a",), "/a", executor, is_standby=True)
    assert found.rejoined is not None
    stores = await open_stores(disk, "/a", SETTINGS)
    await found.rejoined.settle_stores(stores, "/broker_configs/1")
    await stores.close()
    executor.close()


async def test_a_directory_rejoins_as_often_as_another_broker_takes_over_from_it() -> None:
    disk = MemoryFileSystem()
    world = await open_world(disk, "/a")
    offsets = await world.create(OFFSETS_TOPIC, 1)
    await world.close()
    folder = topic_directory(OFFSETS_TOPIC, offsets.id)
    await rejoin(disk)
    # A promotion makes the topic once more, with the same id.
    world = await open_world(disk, "/a")
    await world.topics.create(OFFSETS_TOPIC, partitions_count=1, topic_id=offsets.id)
    await world.close()
    disk.replace_durably(f"/a/{folder}/second", b"")

    await rejoin(disk)

    assert not disk.exists(f"/a/{folder}")
    kept = sorted(each for each in disk.list("/a") if each.startswith(f"{folder}.before"))
    assert len(kept) == 2
    assert [disk.exists(f"/a/{each}/second") for each in kept] == [False, True]
    world = await open_world(disk, "/a")
    assert world.topics.all() == []
    await world.close()
