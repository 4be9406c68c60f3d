"""`kompakt compact ...` as an operator types it, against a real broker."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.harness.broker_process import CHECKOUT, BrokerProcess, free_ports, scrape
from tests.harness.clients import create_topic
from tests.harness.typed_commands import TypedCommands

PATIENCE_SECONDS = 300.0


class Operator(TypedCommands):
    """Types commands of the cleaner at a broker."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(broker)
        scrape(f"127.0.0.1:{broker.http_port}", "/health/live")

    def run(self, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return super().run("compact", *arguments, given=given)

    def produce(self, topic: str, count: int, keys: int, *, partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers})
        for number in range(count):
            producer.produce(topic, key=f"k{number % keys}", value="v" * 100, partition=partition)
            if number % 1000 == 999:
                producer.flush(20)
        assert producer.flush(20) == 0

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0", **config}
        create_topic(self.broker.bootstrap_servers, topic, partitions=partitions, config=settings)


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    with BrokerProcess(tmp_path_factory.mktemp("steered")) as broker:
        yield Operator(broker)


def test_plan_then_now_then_status_agree(operator: Operator) -> None:
    operator.create("orders", 2)
    operator.produce("orders", 3000, 10)

    text = operator.told("plan", "orders-0")
    assert "would clean [0, 3000), after the active segment has rolled" in text
    assert "superseded: 2,990 records" in text

    planned = operator.json("plan", "orders-0")["partitions"][0]["plan"]["report"]
    done = operator.json("now", "orders-0")["partitions"][0]["report"]
    times = {"seconds", "throttled_seconds", "verify_seconds"}
    assert {key: planned[key] for key in planned.keys() - times} == {
        key: done[key] for key in done.keys() - times
    }
    assert re.search(r"^orders-0 .* 2,990  requested", operator.told("status"), re.MULTILINE)


def test_now_of_a_topic_says_what_it_did_to_each_partition(operator: Operator) -> None:
    operator.create("pairs", 2)
    operator.produce("pairs", 100, 5, partition=0)
    operator.produce("pairs", 100, 5, partition=1)

    told = operator.told("now", "pairs")

    lines = [line for line in told.splitlines() if not line.startswith(" ")]
    assert [line.split(":")[0] for line in lines] == ["pairs-0", "pairs-1"]
    assert all("100 -> 5 records" in line for line in lines)


def test_a_topic_whose_name_looks_like_a_partition_comes_first(operator: Operator) -> None:
    operator.create("dash", 2)
    operator.create("dash-1")
    operator.produce("dash-1", 10, 1)

    assert operator.told("now", "dash-1").startswith("dash-1-0: cleaned [0, 10)")


def test_explain_names_the_reason_and_what_changes_it(operator: Operator) -> None:
    operator.create("asked")
    operator.produce("asked", 10, 1)

    text = operator.told("explain", "asked-0")

    assert text.startswith("asked-0 is not being compacted: offsets [0, 10)")
    assert "-> kompakt compact now asked-0 rolls it" in text
    (explanation,) = operator.json("explain", "asked")["partitions"]
    assert explanation["findings"][0]["obstacle"] == "active_segment"


def test_explain_a_key(operator: Operator) -> None:
    operator.create("keyed")
    operator.produce("keyed", 20, 2)

    text = operator.told("explain", "keyed", "--key", "k1")
    assert "keyed-0: 10 records of the key on disk" in text
    assert "superseded by 19" in text
    operator.told("now", "keyed")
    (part,) = operator.json("explain", "keyed-0", "--key-hex", b"k1".hex())["partitions"]
    assert [record["offset"] for record in part["key"]["records"]] == [19]
    assert "physically gone" in operator.told("explain", "keyed", "--key", "none")


def test_a_pause_holds_over_a_restart_until_it_is_resumed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        operator = Operator(broker)
        operator.create("held")
        operator.produce("held", 10, 1)
        assert "held-0 is paused since" in operator.told("pause", "held-0")
        broker.restart()
        operator = Operator(broker)

        refused = operator.run("now", "held-0")
        assert refused.returncode == 1
        assert "paused (partition): resume it first, or force the pass" in refused.stderr
        assert "-> kompakt compact resume held-0" in operator.told("explain", "held")
        assert "held-0 is paused since" in operator.told("status")
        operator.told("now", "held-0", "--force")
        assert operator.told("resume") == "nothing is paused\n"


def test_ctrl_c_leaves_the_pass_running_and_says_so(tmp_path: Path) -> None:
    slow = {
        "log.cleaner.io.max.bytes.per.second": 100,
        "log.cleaner.latency.guard.enable": "false",
    }
    with BrokerProcess(tmp_path, slow) as broker:
        operator = Operator(broker)
        operator.create("slow")
        operator.produce("slow", 10, 1)
        # If the tests run in the background, they and their children ignore the signal.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        typed = operator.started("compact", "now", "slow-0", stderr=subprocess.PIPE)
        wait_until_running(operator)
        typed.send_signal(signal.SIGINT)
        _, told = typed.communicate(timeout=PATIENCE_SECONDS)

        assert typed.returncode == 130
        assert "the pass continues in the broker" in told
        (running,) = operator.json("status")["running"]
        assert (running["topic"], running["task"]) == ("slow", "clean")
        assert running["progress"]["eta_seconds"] > 0


def wait_until_running(operator: Operator) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not operator.json("status")["running"]:
        assert time.monotonic() < deadline


def test_the_commands_of_the_readme_work_as_they_stand_there(operator: Operator) -> None:
    operator.create("accounts")
    operator.produce("accounts", 10, 2)
    operator.told("now", "accounts")
    # Other commands of the README create this one.
    operator.create("rates")
    operator.produce("rates", 3, 1)
    lines = (CHECKOUT / "README.md").read_text().splitlines()
    typed = [line[2:] for line in lines if re.match(r"\$ (\.venv/bin/kompakt compact|curl) ", line)]
    assert len(typed) >= 10

    for line in typed:
        done = operator.line(line)
        assert done.returncode == 0, (line, done)
        assert '{"error"' not in done.stdout, (line, done)


def test_every_command_has_its_help(operator: Operator) -> None:
    names = ["now", "cancel", "plan", "status", "explain", "keys", "undo", "pause", "resume"]
    listed = operator.told("--help")

    assert all(f" {name} " in listed for name in names)
    for name in names:
        text = operator.told(name, "--help")
        assert "--url" in text
        assert "--json" in text


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["now", "nope"], 1, "kompakt: there is no topic nope"),
        (["now", "nope-3"], 1, "kompakt: there is no topic nope-3"),
        (["explain", "nope"], 1, "kompakt: there is no topic nope"),
        (["pause", "nope"], 1, "kompakt: there is no topic nope"),
        (["explain", "x", "--key", "a", "--key-hex", "61"], 2, "use either --key or --key-hex"),
        (["now"], 2, "Missing argument"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_an_exit_code(
    operator: Operator, arguments: list[str], code: int, sentence: str
) -> None:
    done = operator.run(*arguments)

    assert done.returncode == code, done
    assert sentence in done.stderr


def test_partition_numbers_beyond_the_last_and_other_policies_are_refused(
    operator: Operator,
) -> None:
    operator.create("few", 2)
    operator.create("kept", 1, **{"cleanup.policy": "delete"})

    assert "topic few has no partition 7: it has 2" in operator.run("now", "few-7").stderr
    assert "kept-0 is not compacted: set cleanup.policy" in operator.run("plan", "kept").stderr


@pytest.mark.parametrize(
    ("url", "code", "sentence"),
    [
        ("http://127.0.0.1:{free}", 3, "{free} (Connection refused): is it running"),
        ("http://127.0.0.1:{kafka}", 3, "no broker answers at"),
        ("http://127.0.0.1:{http}/metrics", 3, "is not a Kompakt broker of this release"),
        ("nonsense", 2, "is not an HTTP URL"),
    ],
)
def test_a_wrong_url_is_told_with_what_to_look_at(
    operator: Operator, url: str, code: int, sentence: str
) -> None:
    broker = operator.broker
    (free,) = free_ports(1)
    given = url.format(free=free, kafka=broker.port, http=broker.http_port)

    done = operator.run("status", "--url", given)

    assert done.returncode == code, done
    assert sentence.format(free=free) in done.stderr
    assert done.stderr.count("\n") == 1


def test_digest_says_the_same_before_and_after_a_pass(operator: Operator) -> None:
    operator.create("summed", 2)
    operator.produce("summed", 300, 10)

    dirty = operator.json("digest", "summed-0")["partitions"][0]["digest"]
    operator.told("now", "summed")
    told = operator.told("digest", "summed").splitlines()

    assert told[0].split() == ["partition", "from", "to", "keys", "with", "a", "value", "digest"]
    assert told[1].split() == ["summed-0", "0", "300", "10", dirty["digest"]]
    assert told[2].split() == ["summed-1", "0", "0", "0", "0" * 32]
    below = operator.told("digest", "summed-0", "--end-offset", "100")
    assert "summed-0 is cleaned up to offset 300" in below


def test_keys_are_counted_and_the_hot_ones_named(operator: Operator) -> None:
    operator.create("counted", 2)
    operator.produce("counted", 299, 10)
    operator.produce("counted", 3, 3, partition=1)

    told = operator.told("keys", "counted", "--top", "2").splitlines()

    rows = [line.split() for line in told]
    assert rows[0] == ["partition", "keys", "live", "deleted", "records", "superseded", "size"]
    assert [row[:6] for row in rows[1:4]] == [
        ["counted-0", "10", "10", "0", "299", "289"],
        ["counted-1", "3", "3", "0", "3", "0"],
        ["all", "13", "13", "0", "302", "289"],
    ]
    assert [row[:3] for row in rows[6:8]] == [["counted-0", "k8", "30"], ["counted-0", "k7", "30"]]
    assert ["17-32", "10", "299"] in rows
    assert any(line.startswith("the hottest 1 % (1 key) has 9.9% of the records") for line in told)
    assert "no forecast: the records since the last pass are less than a day old" in told
    answer = operator.json("keys", "counted", "--partition", "1")
    assert [part["keys"]["keys"] for part in answer["partitions"]] == [3]
    assert {each["key"] for each in answer["total"]["hot_keys"]} == {"k0", "k1", "k2"}
    assert "has no partition 7" in operator.run("keys", "counted", "--partition", "7").stderr
    assert "there is no topic nope" in operator.run("keys", "nope").stderr


def test_a_pass_is_undone_and_the_topic_is_paused(operator: Operator) -> None:
    operator.create("undone", 1, **{"compaction.undo.ms": "3600000"})
    operator.produce("undone", 300, 10)
    assert "no pass over undone-0 can be undone" in operator.told("undo", "undone")
    number = str(operator.json("now", "undone")["partitions"][0]["report"]["undo_number"])
    (row,) = operator.told("undo", "undone-0").splitlines()[1:]
    assert row.split()[:2] == ["undone-0", number]
    assert row.rstrip().endswith("now")
    assert f"kompakt compact undo undone-0 {number}" in operator.told("history", "undone")
    assert "of replaced segments are kept" in operator.told("status")

    told = operator.told("undo", "undone-0", number).splitlines()

    assert f"pass {number} is undone: 1 segment" in told[0]
    assert told[1].startswith("the cleaning of undone is paused")
    assert "undone-0 is paused (topic)" in operator.run("now", "undone").stderr
    again = operator.run("undo", "undone-0", number)
    assert again.returncode == 1
    assert f"pass {number} of undone-0 cannot be undone: it was undone" in again.stderr
    assert operator.json("digest", "undone")["partitions"][0]["digest"]["clean_offset"] == 0
    operator.told("resume", "undone")
    assert operator.json("now", "undone")["partitions"][0]["report"]["records_after"] == 10
