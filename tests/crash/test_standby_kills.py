"""Real standbys of a real broker, stopped and killed: at equal ends they have equal digests.

`KOMPAKT_STANDBY_KILLS` sets how many kills there are, `KOMPAKT_STANDBY_SEED` repeats the choices.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from tests.harness.broker_process import BrokerProcess, samples, scrape
from tests.harness.standby_process import (
    CURRENT_SECONDS_MAX,
    STEP_SECONDS,
    Json,
    StandbyProcess,
    digest_in,
)

KILLS = int(os.environ.get("KOMPAKT_STANDBY_KILLS", "12"))
INTERNAL = {"inter.broker.listener.name": "PLAINTEXT"}
SNAPSHOTS_OFTEN = INTERNAL | {"replog.snapshot.u": "1000", "replog.catchup.entries": "0"}
"""A snapshot after every few changes, and no entries before it for slow followers."""


class Admin:
    """Changes the metadata: topics that come and go, and their settings."""

    def __init__(self, broker: BrokerProcess, *, first: int = 0) -> None:
        self._client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        self._number = first
        self._topics: list[str] = []

    def change(self, count: int) -> None:
        """Make some changes; each is durable when this returns."""
        for _ in range(count):
            self._number += 1
            name = f"topic-{self._number}"
            for done in self._client.create_topics([NewTopic(name, 2, 1)]).values():
                done.result()
            self._topics.append(name)
            entry = ConfigEntry(
                "retention.ms", str(self._number), incremental_operation=AlterConfigOpType.SET
            )
            resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
            for done in self._client.incremental_alter_configs([resource]).values():
                done.result()
            if len(self._topics) > 3:
                self._delete(self._topics.pop(0))

    def _delete(self, name: str) -> None:
        for done in self._client.delete_topics([name]).values():
            done.result()


def led(broker: BrokerProcess) -> Json:
    """Returns what the leader says about itself and its followers, once it answers."""
    found = scrape(f"127.0.0.1:{broker.http_port}", "/v1/metadata/followers")
    leader: Json = json.loads(found)
    return leader


@contextmanager
def standbys(folder: Path, broker: BrokerProcess, count: int) -> Iterator[list[StandbyProcess]]:
    """Run standbys; those that run at the end must stop properly."""
    made = [StandbyProcess(folder / f"standby-{n}", broker.bootstrap_servers) for n in range(count)]
    try:
        for each in made:
            each.start()
        yield made
    except BaseException:
        for each in made:
            if each._process is not None:
                each.kill()
        raise
    for each in made:
        if each._process is not None:
            assert each.stop() == 0, each.tail()


def assert_equal_now(broker: BrokerProcess, *copies: StandbyProcess) -> None:
    """Wait until these have everything; whenever the ends are equal, the digests are.

    The leader changes its metadata by itself, too: files of topics are settled a moment later.
    """
    for each in copies:
        deadline = time.monotonic() + CURRENT_SECONDS_MAX
        while True:
            assert time.monotonic() < deadline, f"never equal{each.tail()}"
            leader, found = led(broker), each.status()
            if found is not None and found["end"] == leader["end"] == led(broker)["end"]:
                assert found["digest"] == leader["digest"]
                break
            time.sleep(STEP_SECONDS)


def test_a_standby_follows_topics_and_settings_and_has_the_same_digest(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker", INTERNAL) as broker:
        admin = Admin(broker)
        admin.change(3)
        with standbys(tmp_path, broker, 1) as (standby,):
            assert_equal_now(broker, standby)
            admin.change(5)
            assert_equal_now(broker, standby)
            (follower,) = led(broker)["followers"]
            assert (follower["installs"], follower["download"]) == (0, None)
            named = {"follower": follower["id"]}
            scraped = broker.metrics()
            assert samples(scraped, "kompakt_replog_follower_installs_total", **named) == [0]
            (lag,) = samples(scraped, "kompakt_replog_follower_lag_entries", **named)
            assert lag <= 2, "it asks again at once for what the leader appends"
    assert standby.digest() == digest_in(broker.data_dir / "metadata")
    states = [each["state"] for each in standby.events()]
    assert states == ["connecting", "current", "stopped"]


def test_a_standby_that_was_away_installs_a_snapshot_twice_in_a_row(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "broker", SNAPSHOTS_OFTEN) as broker,
        standbys(tmp_path, broker, 1) as (standby,),
    ):
        admin = Admin(broker)
        for _ in range(2):
            assert_equal_now(broker, standby)
            assert standby.stop() == 0
            admin.change(6)
            standby.start()
            assert_equal_now(broker, standby)
            found = standby.status()
            assert found is not None
            assert found["installs"] == 1
        assert led(broker)["followers"][0]["installs"] == 2
    assert standby.digest() == digest_in(broker.data_dir / "metadata")
    assert [each["state"] for each in standby.events()].count("installing") >= 2


def test_whatever_is_killed_all_copies_end_with_the_same_digest(tmp_path: Path) -> None:
    seed = int(os.environ.get("KOMPAKT_STANDBY_SEED", random.randrange(1 << 16)))
    rng = random.Random(seed)
    (tmp_path / "seed").write_text(f"KOMPAKT_STANDBY_SEED={seed}")
    with (
        BrokerProcess(tmp_path / "broker", SNAPSHOTS_OFTEN) as broker,
        standbys(tmp_path, broker, 3) as copies,
    ):
        admin = Admin(broker)
        for _ in range(KILLS):
            admin.change(rng.randrange(1, 4))
            processes: list[BrokerProcess | StandbyProcess] = [broker, *copies]
            killed = rng.choice(processes)
            killed.kill()
            if killed is broker:
                broker.start()
                continue
            admin.change(rng.randrange(3))
            killed.start()
        admin.change(2)
        assert_equal_now(broker, *copies)
    expected = digest_in(broker.data_dir / "metadata")
    assert {each.digest() for each in copies} == {expected}


def test_a_leader_of_another_cluster_is_refused_and_the_copy_stays(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker", INTERNAL) as broker:
        Admin(broker).change(2)
        standby = StandbyProcess(tmp_path / "standby", broker.bootstrap_servers)
        with standby:
            standby.wait_until_at(led(broker)["end"])
        before = standby.digest()
    with BrokerProcess(tmp_path / "other", INTERNAL) as other:
        moved = StandbyProcess(tmp_path / "standby", other.bootstrap_servers)
        moved.start()
        assert moved.ended() == 1
    assert "follows cluster" in moved.tail()
    assert moved.digest() == before


def test_a_leader_that_was_restored_from_an_older_backup_in_its_term_is_refused(
    tmp_path: Path,
) -> None:
    broker, backup = BrokerProcess(tmp_path / "broker", INTERNAL), tmp_path / "backup"
    with broker:
        Admin(broker).change(1)
    shutil.copytree(broker.data_dir, backup)
    with broker:
        Admin(broker, first=10).change(2)
        term = led(broker)["term"]
        standby = StandbyProcess(tmp_path / "standby", broker.bootstrap_servers)
        with standby:
            standby.wait_until_at(led(broker)["end"])
    before = standby.digest()
    shutil.rmtree(broker.data_dir)
    shutil.copytree(backup, broker.data_dir)
    with broker:
        # More changes than before: otherwise the end of the leader's log tells.
        Admin(broker, first=20).change(4)
        assert led(broker)["term"] == term
        standby.start()
        assert standby.ended() == 1
    assert "it was restored from an older backup" in standby.tail()
    assert standby.digest() == before


def test_a_second_standby_and_a_brokers_directory_are_refused(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "broker", INTERNAL) as broker,
        standbys(tmp_path, broker, 1) as (standby,),
    ):
        standby.wait_until_at(1)
        second = StandbyProcess(tmp_path / "standby-0", broker.bootstrap_servers)
        second.start()
        assert second.ended() == 1
        over = StandbyProcess(tmp_path / "broker", broker.bootstrap_servers)
        over.arguments = ("--data", str(broker.data_dir))
        over.start()
        assert over.ended() == 1
        assert "is a broker's data directory" in over.tail()
