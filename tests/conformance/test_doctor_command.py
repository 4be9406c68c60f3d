"""`kompakt doctor` as a user types it before a start, and beside a broker."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.harness.broker_process import CHECKOUT, BrokerProcess, free_ports, scrape
from tests.harness.clients import create_topic
from tests.harness.typed_commands import TypedCommands, run_kompakt


def doctor(*arguments: str, **properties: object) -> subprocess.CompletedProcess[str]:
    pairs = [f"--override={name}={value}" for name, value in properties.items()]
    environment = {**os.environ, "COLUMNS": "80"}
    return run_kompakt("doctor", *arguments, *pairs, environment=environment)


def faults(*arguments: str, **properties: object) -> list[dict[str, Any]]:
    """Returns the faults that are found; checks that the exit code agrees."""
    done = doctor("--json", *arguments, **properties)
    report = json.loads(done.stdout)
    found = [each for each in report["findings"] if each["status"] == "fault"]
    assert done.returncode == (1 if found else 0), done
    assert report["fault_count"] == len(found)
    return found


def unwrapped(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, object]:
    (port,) = free_ports(1)
    return {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "log.dirs": tmp_path / "data"}


def test_what_is_well_is_told_and_nothing_is_left_behind(
    tmp_path: Path, properties: dict[str, object]
) -> None:
    done = doctor(**properties)

    assert done.returncode == 0, done
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["ok", "configuration", "properties", "set:", "2"]
    assert lines[-1].startswith("faults: 0, warnings: ")
    assert max(map(len, lines)) <= 80
    for check in ("descriptors", "free space", "sync", "clock", "memory", "listener"):
        assert any(check in line for line in lines), check
    assert list(tmp_path.iterdir()) == []


def test_a_running_broker_is_recognised(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        typed: dict[str, object] = {
            "listeners": f"PLAINTEXT://127.0.0.1:{broker.port}",
            "log.dirs": broker.data_dir,
        }
        before = sorted(broker.data_dir.rglob("*"))

        assert faults(**typed) == []
        assert "a broker of cluster" in doctor(**typed).stdout
        assert sorted(broker.data_dir.rglob("*")) == before


def test_topics_of_a_running_broker_whose_settings_do_harm_are_named(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        typed = {
            "listeners": f"PLAINTEXT://127.0.0.1:{broker.port}",
            "log.dirs": broker.data_dir,
        }
        assert "none does harm" in unwrapped(doctor(**typed).stdout)
        for topic in ("a", "b"):
            config = {"cleanup.policy": "compact", "delete.retention.ms": "0"}
            create_topic(broker.bootstrap_servers, topic, config=config)

        text = unwrapped(doctor(**typed).stdout)

        assert "warning topics a, b: with delete.retention.ms=0 a deletion is gone" in text
        assert "-> set delete.retention.ms to the longest time" in text


def test_a_running_broker_that_holds_the_directory_is_seen_whatever_the_listeners(
    tmp_path: Path, properties: dict[str, object]
) -> None:
    with BrokerProcess(tmp_path) as broker:
        typed = properties | {"log.dirs": broker.data_dir}

        (fault,) = faults(**typed)

        assert fault["text"].startswith(f"{broker.data_dir} is locked by a running broker")
    assert faults(**typed) == []


def test_every_bad_property_is_reported(properties: dict[str, object]) -> None:
    bad = {"log.segment.bytes": "x", "num.partitions": "0", "log.cleaner.threads": "many"}

    found = faults(**properties, **bad)

    assert [each["check"] for each in found] == ["configuration"] * 3
    assert {name for name in bad for each in found if name in each["text"]} == set(bad)


def test_the_readmes_line_looks_before_a_start_and_beside_a_broker(tmp_path: Path) -> None:
    readme = (CHECKOUT / "README.md").read_text()
    (line,) = re.findall(r"^\$ (.+kompakt doctor .+)$", readme, re.MULTILINE)
    with BrokerProcess(tmp_path / "broker") as broker:
        rows = {"listeners": f"PLAINTEXT://127.0.0.1:{broker.port}", "log.dirs": broker.data_dir}
        properties = tmp_path / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in rows.items()))
        commands = TypedCommands(broker)

        beside = commands.line(line, cwd=tmp_path)
        assert (beside.returncode, "a broker of cluster" in beside.stdout) == (0, True), beside
    before = commands.line(line, cwd=tmp_path)
    assert (before.returncode, "a broker of cluster" in before.stdout) == (0, False), before
    properties.write_text("log.cleaner.threads=many\n")
    refused = commands.line(line, cwd=tmp_path)
    assert refused.returncode == 1, refused
    assert "log.cleaner.threads" in refused.stdout


def test_a_port_of_another_program_is_a_fault(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        taken = f"PLAINTEXT://127.0.0.1:{broker.http_port}"
        scrape(f"127.0.0.1:{broker.http_port}", "/health/live")

        (fault,) = faults(listeners=taken, **{"log.dirs": tmp_path / "other"})

    assert f"port {broker.http_port} is in use" in fault["text"]
    assert "is not a Kafka broker" in fault["text"]


def test_a_configuration_that_cannot_run_is_the_one_fault(properties: dict[str, object]) -> None:
    (fault,) = faults(**{**properties, "advertised.listeners": "PLAINTEXT://0.0.0.0:9092"})

    assert fault["check"] == "configuration"
    assert "cannot be reached" in fault["text"]


def test_a_directory_of_somebody_else_is_a_fault(
    tmp_path: Path, properties: dict[str, object]
) -> None:
    with BrokerProcess(tmp_path) as broker:
        pass

    (fault,) = faults(**{**properties, "log.dirs": broker.data_dir, "node.id": 7})

    assert fault["check"] == "data"
    assert "belongs to node.id 1, and this broker has 7" in fault["text"]


def test_a_clock_before_its_own_data_and_a_failed_sync_are_told(
    tmp_path: Path, properties: dict[str, object]
) -> None:
    with BrokerProcess(tmp_path) as broker:
        pass
    os.utime(broker.data_dir / "start-counter", (4_000_000_000, 4_000_000_000))
    (broker.data_dir / ".sync-failed").write_text("Input/output error")

    done = doctor(**{**properties, "log.dirs": broker.data_dir})

    assert done.returncode == 1
    assert "in the future" in unwrapped(done.stdout)
    assert "a sync failed in the last run" in unwrapped(done.stdout)


def test_a_misspelt_property_and_an_unknown_name_are_told(properties: dict[str, object]) -> None:
    port = str(properties["listeners"]).rpartition(":")[2]
    told = {"advertised.listeners": f"PLAINTEXT://nowhere.invalid:{port}", "log.segmnt.bytes": 5}

    done = doctor(**{**properties, **told})

    assert done.returncode == 1
    assert "did you mean log.segment.bytes?" in unwrapped(done.stdout)
    assert "a name that does not resolve here" in unwrapped(done.stdout)
