"""`kompakt groups ...` as an operator types it, beside real consumers of a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Message

from tests.harness.broker_process import BrokerProcess
from tests.harness.typed_commands import TypedCommands

POLLS_MAX = 60


@pytest.fixture(scope="module")
def kompakt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TypedCommands]:
    overrides = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
    with BrokerProcess(tmp_path_factory.mktemp("groups"), overrides) as broker:
        typed = TypedCommands(broker)
        typed.told("topics", "create", "orders", "--partitions", "2")
        typed.told("produce", "orders", "-p", "0", given="a\nb\nc\nd\ne\n")
        yield typed


@contextmanager
def reading(
    kompakt: TypedCommands, group: str, count: int, protocol: str = "classic"
) -> Iterator[Consumer]:
    """A member that has read `count` records and committed that."""
    consumer = Consumer(
        {
            "bootstrap.servers": kompakt.broker.bootstrap_servers,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    try:
        last = taken(consumer, count)
        consumer.commit(last, asynchronous=False)
        yield consumer
    finally:
        consumer.close()


def taken(consumer: Consumer, count: int) -> Message:
    """The last of the next `count` records."""
    messages: list[Message] = []
    for _ in range(POLLS_MAX):
        message = consumer.poll(1.0)
        if message is not None:
            assert message.error() is None, message.error()
            messages.append(message)
        if len(messages) == count:
            return messages[-1]
    raise AssertionError(f"{len(messages)} records came, not {count}")


def test_a_group_is_listed_and_described_with_its_lag_and_members(kompakt: TypedCommands) -> None:
    with reading(kompakt, "shown", 3):
        assert ["shown", "Stable", "classic", "consumer"] in map(
            str.split, kompakt.told("groups", "list").splitlines()
        )
        lines = kompakt.told("groups", "describe", "shown").splitlines()
        assert lines[0] == "shown: Stable, 1 member, range, lag 2"
        assert lines[2].split() == ["orders-0", "3", "5", "2", "2", "reader@127.0.0.1"]
        assert lines[3].split() == ["orders-1", "-", "0", "-", "-", "reader@127.0.0.1"]
        assert max(map(len, lines)) <= 80
        (described,) = kompakt.json("groups", "describe", "shown")["groups"]
        (member,) = described["members"]
        assert (described["lag"], member["client_id"]) == (2, "reader")
        assert [part["member_id"] for part in described["partitions"]] == [member["member_id"]] * 2

    assert "shown: Empty, 0 members, lag 2" in kompakt.told("groups", "describe", "shown")


def test_a_group_of_the_consumer_protocol_is_shown_like_any_other(kompakt: TypedCommands) -> None:
    with reading(kompakt, "new", 3, "consumer"):
        assert ["new", "Stable", "consumer", "consumer"] in map(
            str.split, kompakt.told("groups", "list").splitlines()
        )
        lines = kompakt.told("groups", "describe", "new").splitlines()
        assert lines[0] == "new: Stable, 1 member, uniform, lag 2"
        assert lines[2].split() == ["orders-0", "3", "5", "2", "2", "reader@127.0.0.1"]
        typed = ["groups", "reset-offsets", "new", "--to-earliest", "--execute"]
        assert "new has 1 member: stop them first" in kompakt.refused(*typed)

    (described,) = kompakt.json("groups", "describe", "new")["groups"]
    assert (described["type"], described["state"], described["members"]) == (
        "consumer",
        "Empty",
        [],
    )
    assert kompakt.told("groups", "delete", "new", "--yes") == "deleted new\n"


def test_offsets_are_reset_when_it_is_executed_and_nobody_reads(kompakt: TypedCommands) -> None:
    typed = ["groups", "reset-offsets", "moved", "--to-earliest"]
    with reading(kompakt, "moved", 3):
        assert "moved has 1 member: stop them first" in kompakt.refused(*typed, "--execute")

    said = kompakt.told(*typed)
    assert said.splitlines()[1].split() == ["orders-0", "3", "0", "-3"]
    assert said.endswith("1 offset of moved would be set; --execute sets them\n")
    (part,) = kompakt.json("groups", "describe", "moved")["groups"][0]["partitions"]
    assert part["committed_offset"] == 3
    assert kompakt.told(*typed, "--execute").endswith("1 offset of moved set\n")
    with reading(kompakt, "moved", 1):
        (first, _) = kompakt.json("groups", "describe", "moved")["groups"][0]["partitions"]
        assert first["committed_offset"] == 1


@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        (["--to-latest"], 5),
        (["--to-offset", "2"], 2),
        (["--to-offset", "99"], 5),
        (["--shift-by", "-1"], 2),
        (["--to-current"], 3),
        (["--to-moment", "1h"], 0),
        (["--to-moment", "2100-01-01"], 5),
    ],
)
def test_where_offsets_may_be_set_to(
    kompakt: TypedCommands, goal: list[str], expected: int
) -> None:
    kompakt.told(
        "groups", "reset-offsets", "aimed", "-t", "orders:0", "--to-offset", "3", "--execute"
    )

    (part,) = kompakt.json("groups", "reset-offsets", "aimed", *goal)["partitions"]

    assert (part["committed_offset"], part["new_offset"]) == (3, expected)


def test_groups_and_their_offsets_are_deleted(kompakt: TypedCommands) -> None:
    for group in ("gone", "kept"):
        kompakt.told("groups", "reset-offsets", group, "-t", "orders", "--to-latest", "--execute")

    said = kompakt.told("groups", "delete-offsets", "kept", "-t", "orders:1")
    assert said == "deleted the offsets of kept for orders-1\n"
    (part,) = kompakt.json("groups", "describe", "kept")["groups"][0]["partitions"]
    assert (part["topic"], part["partition"]) == ("orders", 0)
    assert kompakt.told("groups", "delete", "gone", "--yes") == "deleted gone\n"
    assert "gone" not in kompakt.told("groups", "list")
    with reading(kompakt, "busy", 1):
        assert "busy has members: stop them first" in kompakt.refused(
            "groups", "delete", "busy", "--yes"
        )


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["describe", "nope"], 1, "there is no group nope; kompakt groups list shows"),
        (["delete", "nope", "--yes"], 1, "there is no group nope"),
        (["delete", "nope"], 2, "add --yes to confirm"),
        (["reset-offsets", "nope", "--to-latest"], 1, "there is no group nope"),
        (["reset-offsets", "x"], 2, "choose one of --to-earliest"),
        (
            ["reset-offsets", "x", "--to-latest", "--shift-by", "1"],
            2,
            "choose one of --to-earliest",
        ),
        (["reset-offsets", "x", "--to-latest", "-t", "nope"], 1, "there is no topic nope"),
        (["reset-offsets", "x", "--to-latest", "-t", "orders:7"], 1, "orders has no partition 7"),
        (["reset-offsets", "x", "--to-latest", "-t", "orders:a"], 2, "write TOPIC, or TOPIC:0,2"),
        (["reset-offsets", "x", "--to-moment", "noon"], 2, "--to-moment noon is not a valid time"),
        (["delete-offsets", "nope", "-t", "orders"], 1, "there is no group nope"),
        (["delete-offsets", "nope"], 2, "choose the topics with --topic"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_an_exit_code(
    kompakt: TypedCommands, arguments: list[str], code: int, sentence: str
) -> None:
    assert sentence in kompakt.refused("groups", *arguments, code=code)
