"""`kompakt acls ...` as an operator types it, against a real broker."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from server.config.authorization_config import AUTHORIZERS
from tests.harness.broker_process import CHECKOUT, BrokerProcess
from tests.harness.typed_commands import TypedCommands

PROPERTIES = {"authorizer.class.name": AUTHORIZERS[0], "super.users": "User:ANONYMOUS;User:root"}


@pytest.fixture(scope="module")
def kompakt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TypedCommands]:
    with BrokerProcess(tmp_path_factory.mktemp("acls"), PROPERTIES) as broker:
        yield TypedCommands(broker)


def test_acls_are_added_listed_and_removed(kompakt: TypedCommands) -> None:
    added = kompakt.told(
        "acls", "add", "--topic", "orders", "--prefixed", "--allow", "User:alice",
        "--deny", "User:bob", "-o", "read", "-o", "describe_configs",
    )  # fmt: skip
    assert added.splitlines()[-1] == "4 ACLs"
    kompakt.told("acls", "add", "--cluster", "--allow", "User:alice", "-o", "All")

    listed = kompakt.told("acls", "list", "--topic", "orders-1").splitlines()
    assert [line.split() for line in listed] == [
        ["resource", "principal", "host", "operation", "permission"],
        ["topic", "orders...", "User:alice", "*", "Read", "allow"],
        ["topic", "orders...", "User:alice", "*", "DescribeConfigs", "allow"],
        ["topic", "orders...", "User:bob", "*", "Read", "deny"],
        ["topic", "orders...", "User:bob", "*", "DescribeConfigs", "deny"],
        ["4", "ACLs"],
    ]
    assert kompakt.told("acls", "list", "--topic", "order") == "0 ACLs\n"
    assert len(kompakt.json("acls", "list", "--principal", "User:alice")["acls"]) == 3

    assert "add --yes" in kompakt.refused("acls", "remove", "--cluster", code=2)
    removed = kompakt.told(
        "acls", "remove", "--topic", "orders", "--prefixed", "--principal", "User:bob", "--yes"
    )
    assert removed.splitlines()[-2:] == ["2 ACLs", "removed"]
    kompakt.told("acls", "remove", "--topic", "orders", "--prefixed", "-y")
    kompakt.told("acls", "remove", "--cluster", "-y")
    assert kompakt.told("acls", "list") == "0 ACLs\n"


def test_check_says_by_which_rule(kompakt: TypedCommands) -> None:
    kompakt.told("acls", "add", "--topic", "bills", "--allow", "User:alice", "--operation", "Write")
    written = ("--topic", "bills")
    assert kompakt.told("acls", "check", "User:alice", "Describe", *written) == (
        "User:alice may Describe topic bills from 127.0.0.1: the ACL of User:alice from * on"
        " literal bills allows Write\n"
    )
    assert "super.users" in kompakt.told("acls", "check", "User:root", "Read", *written)
    denied = kompakt.run("acls", "check", "User:carol", "Read", *written)
    assert (denied.returncode, denied.stdout) == (
        1,
        "User:carol may not Read topic bills from 127.0.0.1: no ACL allows it\n",
    )
    answer = kompakt.json("acls", "check", "User:alice", "Write", *written)
    assert answer["rule"]["principal"] == "User:alice"


def test_every_command_of_the_page_works(kompakt: TypedCommands) -> None:
    page = (CHECKOUT / "docs" / "acls.md").read_text("utf-8")
    lines = re.findall(r"^\$ (.*)$", page, re.MULTILINE)
    assert len(lines) == 6
    for line in lines:
        done = kompakt.line(line)
        assert done.returncode == 0, done
    assert kompakt.told("acls", "list", "--topic", "orders") == "0 ACLs\n"


def test_wrong_arguments_are_refused_with_what_to_write(kompakt: TypedCommands) -> None:
    assert "is no operation" in kompakt.refused(
        "acls", "check", "User:a", "Reed", "--topic", "t", code=2
    )
    assert "--topic" in kompakt.refused("acls", "add", "--allow", "User:a", code=2)
    assert "--allow" in kompakt.refused("acls", "add", "--topic", "t", code=2)
    assert "principalType:principalName" in kompakt.refused(
        "acls", "add", "--topic", "t", "--allow", "a", "-o", "Read", code=2
    )
    assert "one resource" in kompakt.refused("acls", "check", "User:a", "Read", code=2)


def test_a_broker_without_an_authorizer_is_named_as_such(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with BrokerProcess(tmp_path_factory.mktemp("open")) as broker:
        assert "authorizer.class.name" in TypedCommands(broker).refused("acls", "list")
