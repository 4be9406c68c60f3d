"""`kompakt consume --group` as a user types it, against a real broker."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import create_topic
from tests.harness.group_run import until
from tests.harness.typed_commands import TypedCommands

PATIENT = ("--timeout", "300")
"""On a busy machine a member may end without leaving its group: others then wait for its session."""


@pytest.fixture(scope="module")
def kompakt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TypedCommands]:
    overrides = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
    with BrokerProcess(tmp_path_factory.mktemp("members"), overrides) as broker:
        yield TypedCommands(broker)


def filled(kompakt: TypedCommands, topic: str, *partitions: Sequence[str]) -> None:
    """A topic, and in each of its partitions these values in order."""
    create_topic(kompakt.broker.bootstrap_servers, topic, partitions=len(partitions))
    for partition, values in enumerate(partitions):
        write(kompakt, topic, values, partition)


def write(kompakt: TypedCommands, topic: str, values: Sequence[str], partition: int = 0) -> None:
    """Each is a record's key and value."""
    producer = Producer({"bootstrap.servers": kompakt.broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value, value, partition)
    assert producer.flush(20) == 0


def lag(kompakt: TypedCommands, group: str) -> list[int]:
    """Of each partition with a committed offset."""
    (described,) = kompakt.json("groups", "describe", group)["groups"]
    return [each["lag"] for each in described["partitions"]]


def test_a_group_goes_on_behind_what_was_printed(kompakt: TypedCommands) -> None:
    filled(kompakt, "orders", "ab", "c")
    typed = ("consume", "orders", "--group", "billing", *PATIENT)

    assert sorted(kompakt.told(*typed).split()) == ["a", "b", "c"]
    assert lag(kompakt, "billing") == [0, 0]
    assert kompakt.told(*typed) == ""
    write(kompakt, "orders", "d", 1)
    assert kompakt.told(*typed) == "d\n"
    assert sorted(kompakt.told("consume", "orders", "-g", "other").split()) == ["a", "b", "c", "d"]
    assert "Empty" in kompakt.told("groups", "list")


def test_what_is_not_printed_for_the_maximum_is_not_committed(kompakt: TypedCommands) -> None:
    filled(kompakt, "parted", "abc", "xy")
    typed = ("consume", "parted", "--group", "careful", *PATIENT)

    printed = [kompakt.told(*typed, "-n", "2").split() for _ in range(3)]

    assert [len(lines) for lines in printed] == [2, 2, 1]
    assert sorted(line for lines in printed for line in lines) == ["a", "b", "c", "x", "y"]


def test_of_one_key_the_records_between_are_passed_over(kompakt: TypedCommands) -> None:
    filled(kompakt, "keyed", "ababa")
    typed = ("consume", "keyed", "--group", "of-a", "--key", "a", *PATIENT)

    assert kompakt.told(*typed, "-n", "2") == "a\na\n"
    assert lag(kompakt, "of-a") == [2]
    assert kompakt.told(*typed) == "a\n"
    assert lag(kompakt, "of-a") == [0]


def test_a_new_group_may_begin_at_the_end(kompakt: TypedCommands) -> None:
    filled(kompakt, "fresh", "abc")

    assert kompakt.told("consume", "fresh", "--group", "late", "--offset", "end", *PATIENT) == ""
    write(kompakt, "fresh", "d")
    assert kompakt.told("consume", "fresh", "--group", "late", *PATIENT) == "d\n"


def test_what_a_broken_pipe_took_is_printed_again(kompakt: TypedCommands) -> None:
    filled(kompakt, "long", ["y" * 50] * 5_000)

    done = kompakt.line(".venv/bin/kompakt consume long --group piped | head -n 1")

    assert (done.returncode, done.stderr) == (0, "")
    assert kompakt.told("consume", "long", "--group", "piped", *PATIENT).count("\n") == 5_000


class Follower:
    """`kompakt consume --group ... --follow` in the background, printing into a file."""

    def __init__(self, kompakt: TypedCommands, topic: str, group: str, path: Path) -> None:
        # If the tests run in the background, they and their children ignore the signal.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._path = path
        with path.open("wb") as output:
            self._process = kompakt.started(
                "consume", topic, "--group", group, "--follow", stdout=output.fileno()
            )

    def lines(self) -> list[str]:
        return self._path.read_text().splitlines()

    def end(self) -> None:
        """Whatever it does."""
        self._process.kill()
        self._process.wait()

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(timeout=20) == 130


@contextmanager
def two_followers(kompakt: TypedCommands, topic: str, folder: Path) -> Iterator[list[Follower]]:
    followers = [Follower(kompakt, topic, "shared", folder / name) for name in ("one", "two")]
    try:
        until("both read", lambda: len(readers(kompakt)) == 2, lambda: str(readers(kompakt)))
        yield followers
        for follower in followers:
            follower.interrupt()
    finally:
        for follower in followers:
            follower.end()


def readers(kompakt: TypedCommands) -> set[str | None]:
    """The members that read a partition of the shared topic."""
    if "shared" not in kompakt.told("groups", "list"):
        return set()
    (described,) = kompakt.json("groups", "describe", "shared")["groups"]
    return {each["member_id"] for each in described["partitions"]} - {None}


def test_members_share_a_topic_and_leave_nothing_behind(
    kompakt: TypedCommands, tmp_path: Path
) -> None:
    filled(kompakt, "halves", "", "")
    with two_followers(kompakt, "halves", tmp_path) as followers:
        write(kompakt, "halves", "aaa", 0)
        write(kompakt, "halves", "bbb", 1)
        until(
            "all is printed",
            lambda: [len(each.lines()) for each in followers] == [3, 3],
            lambda: str([each.lines() for each in followers]),
        )
        assert [len(set(each.lines())) for each in followers] == [1, 1]

    assert readers(kompakt) == set()
    last = kompakt.run("consume", "halves", "--group", "shared", *PATIENT)
    group = kompakt.run("groups", "describe", "shared", "--json")
    # Seen twice and never again: it was assigned no partitions. The broker's notes say why.
    assert (last.returncode, last.stdout) == (0, ""), (last, group, kompakt.broker.tail())


@pytest.mark.parametrize(
    "options",
    [
        ("--latest",),
        ("--partition", "0"),
        ("--since", "1h"),
        ("--offset", "5"),
    ],
)
def test_what_a_member_cannot_choose_is_refused(
    kompakt: TypedCommands, options: tuple[str, ...]
) -> None:
    said = kompakt.refused("consume", "orders", "--group", "billing", *options, code=2)

    assert said.startswith(f"--group and {options[0]}")
    assert said.endswith("cannot be combined")
