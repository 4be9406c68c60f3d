"""`kompakt snapshot ...` as an operator types it, against a real broker."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.snapshot.snapshots import ids
from tests.harness.broker_process import BrokerProcess, scrape
from tests.harness.clients import create_topic
from tests.harness.typed_commands import TypedCommands


@pytest.fixture
def typed(tmp_path: Path) -> Iterator[TypedCommands]:
    with BrokerProcess(tmp_path) as broker:
        for name in ("orders", "users"):
            create_topic(
                broker.bootstrap_servers, name, partitions=2, config={"cleanup.policy": "compact"}
            )
        # Waits for the HTTP endpoint.
        scrape(f"127.0.0.1:{broker.http_port}", "/health/live")
        typed = TypedCommands(broker)
        typed.told("produce", "orders", "-K", ":", given="alice:1\nbob:2\ncarol:3\n")
        yield typed


def test_snapshot_is_made_listed_shown_and_dropped(typed: TypedCommands) -> None:
    assert typed.told("snapshot", "list") == "there are no snapshots\n"

    told = typed.told("snapshot", "create")
    match = re.match(r"(\S+): \d topics, [\d,]+ partitions, \d+ B, in (/\S+)\n", told)
    assert match, told
    snapshot_id, directory = match.groups()
    assert directory.endswith(f"/snapshots/{snapshot_id}")
    assert (Path(directory) / "snapshot.json").exists()

    listed = typed.told("snapshot", "list")
    assert re.search(rf"^{snapshot_id}  20\d\d-.* UTC ", listed, re.MULTILINE)
    assert re.search(r"only snapshots hold [\d.]+ k?B of the disk\n$", listed)
    shown = typed.told("snapshot", "show", snapshot_id)
    ends = re.findall(r"^orders +\d +0 +(\d) ", shown, re.MULTILINE)
    assert sum(map(int, ends)) == 3

    assert f"{snapshot_id}: dropped, " in typed.told("snapshot", "drop", snapshot_id, "--yes")
    assert typed.json("snapshot", "list") == {"pinned_bytes": 0, "snapshots": []}


def test_snapshot_of_an_earlier_time_or_why_there_can_be_none(typed: TypedCommands) -> None:
    told = typed.told("snapshot", "create", "--topics", "orders", "--at", "1h ago")
    assert re.match(r"\S+: 1 topic, 2 partitions, 0 B as of 20\d\d-.* UTC, in /", told)
    typed.told("compact", "now", "orders")
    assert re.search(
        r"orders-\d was compacted by records up to \d, some of which came later.*: ask for these topics"
        r" as of 20\d\d-\S+ or later, or for others by name",
        typed.refused("snapshot", "create", "--topics", "orders", "--at", "1h ago"),
    )
    typed.refused("snapshot", "create", "--at", "soon", code=2)


def test_snapshot_of_some_topics_for_programs(typed: TypedCommands) -> None:
    made = typed.json("snapshot", "create", "--topics", "orders,users")
    assert {"orders", "users"} <= set(made["topics"])
    one = typed.json("snapshot", "create", "--topics", "orders")
    assert "users" not in one["topics"]
    shown = typed.json("snapshot", "show", one["id"])
    assert {"topic", "partition", "start_offset", "end_offset", "bytes"} == set(
        shown["partitions"][0]
    )
    assert [each["id"] for each in typed.json("snapshot", "list")["snapshots"]] == [
        made["id"],
        one["id"],
    ]
    assert typed.json("snapshot", "drop", made["id"], "--yes") == {"id": made["id"]}


def test_diff_names_the_keys_that_have_changed_since(typed: TypedCommands) -> None:
    first = typed.json("snapshot", "create", "--topics", "orders")["id"]
    typed.told("produce", "orders", "-K", ":", given="alice:7\nbob:2\ndave:4\n")
    typed.told("produce", "orders", "-K", ":", "--null-value", "NULL", given="carol:NULL\n")
    second = typed.json("snapshot", "create", "--topics", "orders")["id"]
    typed.told("produce", "orders", "-K", ":", given="eve:5\n")

    lines = typed.told("snapshot", "diff", first, second, "--topic", "orders").splitlines()
    assert sorted(re.sub(r"(?<=^.) \d ", "", line) for line in lines) == [
        "+ dave  4",
        "- carol  3",
        "~ alice  1 -> 7",
    ]
    told = typed.told("snapshot", "diff", first, "--topic", "orders", "--summary")
    assert told == "orders: 2 added, 1 changed, 1 removed; 1 key as before\n"
    rows = typed.told("snapshot", "diff", second, "--topic", "orders", "--json").splitlines()
    refused = typed.refused("snapshot", "diff", "20261130T041500-7f3a", "--topic", "orders")
    assert "orders.snapshot-20261130T041500-7f3a" in refused
    (row,) = map(json.loads, rows)
    assert (row["change"], row["key"], row["before"]) == ("added", "eve", None)
    assert row["after"]["value"] == "5"


def test_snapshot_that_is_not_complete_is_named_with_what_to_do(typed: TypedCommands) -> None:
    made = typed.json("snapshot", "create")
    Path(made["path"]).unlink()
    complaint = (
        f"kompakt: snapshot {made['id']} is not complete: it was not completed. Remove it with kompakt"
        f" snapshot drop {made['id']}\n"
    )
    listed = typed.run("snapshot", "list")
    assert (listed.returncode, listed.stderr) == (1, complaint)
    assert re.search(rf"^{made['id']}  not complete ", listed.stdout, re.MULTILINE)
    shown = typed.run("snapshot", "show", made["id"])
    assert (shown.returncode, shown.stdout, shown.stderr) == (1, "", complaint)
    assert "dropped" in typed.told("snapshot", "drop", made["id"], "--yes")


def test_mistakes_have_clear_answers(typed: TypedCommands) -> None:
    for command in ("show", "drop"):
        done = typed.run("snapshot", command, "missing")
        assert done.returncode == 1
        assert done.stderr == "kompakt: there is no snapshot missing: see kompakt snapshot list\n"
    done = typed.run("snapshot", "create", "--topics", "orders", "--topic", "missing")
    assert (done.returncode, done.stderr) == (1, "kompakt: there is no topic missing\n")
    made = typed.json("snapshot", "create")
    done = typed.run("snapshot", "drop", made["id"])
    assert done.returncode == 2
    assert "add --yes to confirm" in done.stderr
    done = typed.run("snapshot", "list", "--url", "http://127.0.0.1:1")
    assert "no broker answers at http://127.0.0.1:1" in done.stderr


def test_shell_completes_ids_and_nothing_without_a_broker(typed: TypedCommands) -> None:
    made = typed.json("snapshot", "create")
    assert ids(typed.environment["KOMPAKT_URL"]) == [made["id"]]
    assert ids("http://127.0.0.1:1") == []
