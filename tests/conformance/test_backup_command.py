"""`kompakt backup ...` as an operator types it, against a broker and the one that its backup makes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.config.authorization_config import AUTHORIZERS
from tests.harness.broker_process import BrokerProcess
from tests.harness.standby_process import StandbyProcess
from tests.harness.typed_commands import TypedCommands, run_kompakt

PROPERTIES = {
    "inter.broker.listener.name": "PLAINTEXT",
    "authorizer.class.name": AUTHORIZERS[0],
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
}
PATIENT = ("--timeout", "300")


class Site:
    """A broker with several log directories, and the place of its backups."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.directories = [folder / "disk1", folder / "disk2"]
        dirs = ",".join(map(str, self.directories))
        self.broker = BrokerProcess(folder / "broker", {**PROPERTIES, "log.dirs": dirs})
        self.typed = TypedCommands(self.broker)
        self.place = str(folder / "backups")

    def back_up(self, *options: str) -> str:
        """Back the broker up while it runs. Returns the id of the backup."""
        return str(self.typed.json("backup", "create", "--to", self.place, *options)["id"])

    def restored(self, name: str, *options: str) -> BrokerProcess:
        """Restore a backup into a new directory. Returns a broker on it, which is not started."""
        target = str(self.folder / name)
        restored = self.typed.json(
            "backup", "restore", "--from", self.place, "--to", target, *options
        )
        overrides = {**PROPERTIES, "log.dirs": ",".join(restored["log_dirs"])}
        return BrokerProcess(self.folder / f"broker-of-{name}", overrides)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    with site.broker:
        yield site


def fill(site: Site) -> None:
    """Give the broker something of everything that a backup must have."""
    typed = site.typed
    typed.told("topics", "create", "prices", "--compact", "--partitions", "4")
    typed.told("topics", "create", "events", "--config", "retention.ms=-1")
    typed.told("produce", "prices", "-K", ":", given="apple:1\npear:2\napple:3\n")
    typed.told("produce", "events", given="a\nb\nc\n")
    typed.told("consume", "events", "--group", "readers", *PATIENT)
    typed.told("acls", "add", "--topic", "prices", "--allow", "User:alice", "-o", "read")
    typed.told("users", "add", "alice", "--password-stdin", given="secret\n")
    typed.told("compact", "now", "prices")


def facts(typed: TypedCommands) -> dict[str, object]:
    """What must be the same on both brokers."""
    topics = typed.json("topics", "list")["topics"]
    return {
        "topics": [(each["topic"], each["partitions"]) for each in topics],
        "prices": sorted(typed.told("consume", "prices", "-K", ":").split()),
        "events": typed.told("consume", "events"),
        "configs": typed.json("configs", "describe", "--topic", "events"),
        "acls": typed.json("acls", "list")["acls"],
        "users": typed.json("users", "list")["users"],
        "group": [
            (each["topic"], each["partition"], each["committed_offset"])
            for group in typed.json("groups", "describe", "readers")["groups"]
            for each in group["partitions"]
        ],
    }


def test_a_broker_on_a_restored_backup_has_everything_as_of_the_snapshot(site: Site) -> None:
    fill(site)
    before = facts(site.typed)
    site.back_up()
    site.typed.told("produce", "events", given="later\n")
    site.typed.told("topics", "create", "later")

    with site.restored("restored") as broker:
        typed = TypedCommands(broker)
        assert facts(typed) == before
        typed.told("produce", "events", given="other\n")
        assert typed.told("consume", "events", "--group", "readers", *PATIENT) == "other\n"
        assert "recovered" not in broker.log_path.read_text()
        typed.told("compact", "now", "prices")
    dirs = [str(site.folder / "restored" / each.name) for each in site.directories]
    verified = typed.run("dump-log", "--verify", *dirs)
    assert verified.returncode == 0, verified.stdout
    assert site.typed.told("consume", "events") == "a\nb\nc\nlater\n"


def test_chosen_topics_are_restored_with_the_coordinators_and_no_other_is_known(site: Site) -> None:
    fill(site)
    site.back_up()

    restored = site.restored("some", "--topics", "events")

    target = site.folder / "some"
    assert not [*target.glob("*/prices.*")]
    verified = site.typed.run("dump-log", "--verify", str(target / "disk1"), str(target / "disk2"))
    assert verified.returncode == 0, verified.stdout
    with restored:
        typed = TypedCommands(restored)
        names = [each["topic"] for each in typed.json("topics", "list")["topics"]]
        assert names == ["events"]
        assert typed.told("consume", "events", "--group", "readers", *PATIENT) == ""
        typed.told("topics", "create", "prices")


@pytest.mark.parametrize("starts", [1, 3])
def test_a_standby_that_has_more_than_a_restored_broker_does_not_follow_it(
    site: Site, starts: int
) -> None:
    """Its copy may be the last one of what came after the backup."""
    fill(site)
    site.back_up()
    site.typed.told("topics", "create", "later")
    standby = StandbyProcess(site.folder / "standby", site.broker.bootstrap_servers)
    standby.start()
    standby.wait_until(lambda found: found["state"] == "current" and found["end"] > 0)
    restored = site.restored("restored")
    assert site.broker.stop() == 0
    digest = standby.status()
    assert digest is not None

    # On the same port, after as many starts as the other broker has had, or more.
    restored.port = site.broker.port
    for _ in range(starts - 1):
        restored.start()
        assert restored.stop() == 0
    with restored:
        assert standby.ended() == 1

    assert "restored from an older backup" in standby.tail()
    assert standby.digest() == int(digest["digest"], 16)
    site.broker.start()


def test_backups_are_incremental_listed_verified_and_pruned(site: Site) -> None:
    typed, place = site.typed, site.place
    fill(site)
    first = site.back_up()
    second = site.back_up()

    listed = typed.json("backup", "list", "--to", place)["backups"]
    assert [each["id"] for each in listed] == [first, second]
    assert 0 < listed[1]["added_bytes"] < listed[0]["added_bytes"]
    verified = typed.json("backup", "verify", "--to", place, "--records")
    assert verified["is_sound"]
    assert (verified["backups"], verified["problems"]) == (2, [])
    assert "nothing is wrong" in typed.told("backup", "verify", "--to", place, "--backup", first)
    rehearsed = typed.told("backup", "prune", "--to", place, "--keep", "1", "--dry-run")
    assert f"would delete {first}" in rehearsed
    kept = typed.told("backup", "prune", "--to", place, "--keep", "1", "--keep-for", "30d")
    assert kept == "deleted 0 backups and 0 objects, 0 B; 2 backups left\n"
    pruned = typed.told("backup", "prune", "--to", place, "--keep", "1")
    assert pruned.splitlines()[0].startswith(f"deleted {first} as of 20")
    assert second in typed.told("backup", "list", "--to", place)
    assert typed.json("backup", "verify", "--to", place)["backups"] == 1


def test_damage_is_named_and_ends_with_one(site: Site) -> None:
    typed, place = site.typed, site.place
    fill(site)
    backup = site.back_up()
    longest = max(Path(place).glob("objects/*/*"), key=lambda path: path.stat().st_size)
    data = longest.read_bytes()
    longest.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))

    done = typed.run("backup", "verify", "--to", place)

    assert done.returncode == 1
    assert f"object {longest.name} has other bytes (backups: {backup})" in done.stdout
    target = str(site.folder / "broken")
    text = typed.refused("backup", "restore", "--from", place, "--to", target)
    assert "is incomplete, and no broker starts on it: remove it" in text
    (Path(place) / "backups" / f"{backup}.json").write_text("{}")
    listed = typed.run("backup", "list", "--to", place)
    assert (listed.returncode, listed.stdout) == (1, "")
    assert f"{backup}.json is damaged" in listed.stderr


def test_wrong_uses_are_refused_in_a_sentence(tmp_path: Path) -> None:
    environment = {"COLUMNS": "80", "PATH": "/usr/bin:/bin"}

    def refusal(*arguments: str, code: int = 1) -> str:
        done = run_kompakt("backup", *arguments, environment=environment)
        assert done.returncode == code, done
        assert done.stderr.count("\n") == 1, done
        return done.stderr

    empty, full = str(tmp_path / "empty"), tmp_path / "full"
    full.mkdir()
    (full / "letter").write_text("dear")
    missing = str(tmp_path / "snapshots" / "x" / "snapshot.json")

    assert "has no backups" in refusal("list", "--to", empty)
    assert "has no backups" in refusal("verify", "--to", str(full))
    assert "has no backups" in refusal("restore", "--from", empty, "--to", empty)
    assert "say which backups stay" in refusal("prune", "--to", empty, code=2)
    assert "is not a duration" in refusal("prune", "--to", empty, "--keep-for", "x", code=2)
    created = refusal("create", "--to", empty, "--snapshot", missing)
    assert "run this on the broker's machine" in created
    nobody = refusal("create", "--to", empty, "--url", "http://127.0.0.1:9", code=3)
    assert "no broker answers" in nobody
    assert not Path(empty).exists()


def test_a_broker_on_a_backup_of_an_earlier_time_has_the_topics_of_then(site: Site) -> None:
    typed = site.typed
    typed.told("topics", "create", "prices", "--compact")
    typed.told("produce", "prices", "-K", ":", given="apple:1\npear:2\n")
    at_ms = wait_ms()
    typed.told("produce", "prices", "-K", ":", "--null-value", "NULL", given="apple:3\npear:NULL\n")
    snapshot = typed.json("snapshot", "create", "--topics", "prices", "--at", str(at_ms))["id"]
    assert site.back_up("--snapshot", snapshot) == snapshot
    (listed,) = typed.json("backup", "list", "--to", site.place)["backups"]
    assert listed["as_of_ms"] == at_ms < listed["created_ms"]

    with site.restored("before") as broker:
        restored = TypedCommands(broker)
        assert restored.told("consume", "prices", "-K", ":") == "apple:1\npear:2\n"
        restored.told("produce", "prices", "-K", ":", given="plum:4\n")
        told = restored.told("consume", "prices", "-K", ":", "--group", "readers", *PATIENT)
        assert told == "apple:1\npear:2\nplum:4\n"


def wait_ms() -> int:
    """Returns a millisecond in which nothing was written, once it is over."""
    now_ms = time.time_ns() // 1_000_000 + 1
    while time.time_ns() // 1_000_000 <= now_ms:
        time.sleep(0.001)
    return now_ms
