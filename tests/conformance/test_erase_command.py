"""`kompakt erase ...` as an operator types it, against a real broker."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.broker_process import BrokerProcess, scrape
from tests.harness.clients import create_topic
from tests.harness.typed_commands import TypedCommands


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TypedCommands]:
    with BrokerProcess(tmp_path_factory.mktemp("erased")) as broker:
        config = {"cleanup.policy": "compact"}
        create_topic(broker.bootstrap_servers, "people", partitions=2, config=config)
        # Waits for the HTTP endpoint.
        scrape(f"127.0.0.1:{broker.http_port}", "/health/live")
        yield TypedCommands(broker)


def test_keys_are_erased_certified_and_verified_by_commands(
    typed: TypedCommands, tmp_path: Path
) -> None:
    typed.told("produce", "people", "-K", ":", given="alice:1\nbob:2\ncarol:3\n")

    told = typed.told(
        *("erase", "people", "alice", "--by", "72h", "--certificates", str(tmp_path / "erased"))
    )

    assert told.startswith("people: 1 key to erase by 20")
    (file,) = (tmp_path / "erased").glob("*.json")
    assert re.search(rf"^{file.stem}  people  erased  none", told, re.MULTILINE)
    (listed,) = typed.json("erase", "list", "--topic", "people")["erasures"]
    assert (listed["id"], listed["state"], listed["is_certified"]) == (file.stem, "erased", True)
    assert "delete.retention.ms=86400000 (24.0 h)" in typed.told("erase", "status", file.stem)
    assert json.loads(typed.told("erase", "certificate", file.stem)) == json.loads(file.read_text())
    verified = typed.told("erase", "verify", str(file), "--key", "alice")
    assert re.match(rf"certificate {file.stem} \(erased\) holds: \d records? ", verified)
    other = typed.refused("erase", "verify", str(file), "--key", "bob")
    assert other.endswith("it is about another key")
    file.write_text(file.read_text().replace('"erased"', '"complete"'))
    assert "its signature does not hold" in typed.refused("erase", "verify", str(file))


def test_a_request_that_cannot_be_kept_says_so_at_once_and_can_be_forgotten(
    typed: TypedCommands,
) -> None:
    done = typed.run("erase", "request", "people", "626f62", "--hex", "--by", "12h", "--json")
    (erasure,) = json.loads(done.stdout)["erasures"]

    assert erasure["risk"] == "at risk"
    assert typed.run("erase", "status", erasure["id"]).returncode == 1
    assert "kompakt_erasures_at_risk 1.0" in typed.broker.metrics()
    assert "is forgotten" in typed.told("erase", "forget", erasure["id"], "--yes")
    assert "there is no erasure" in typed.refused("erase", "status", erasure["id"])


def test_what_is_wrong_is_said_in_one_line(typed: TypedCommands) -> None:
    assert "there is no topic none" in typed.refused("erase", "none", "alice")
    assert "name a key" in typed.refused("erase", "people", code=2)
    assert "--by is a time from now" in typed.refused("erase", "people", "a", "--by", "x", code=2)
