"""What can be said of the container without running one."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from server.config import BrokerConfig
from server.config_sources import from_environment

DOCKER = Path(__file__).resolve().parents[1] / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text("utf-8")


@pytest.fixture(scope="module")
def entrypoint() -> ModuleType:
    spec = importlib.util.spec_from_file_location("entrypoint", DOCKER / "entrypoint.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def instructions(name: str) -> list[str]:
    joined = DOCKERFILE.replace("\\\n", " ")
    return re.findall(rf"^{name}\s+(.*)$", joined, re.MULTILINE)


def test_the_broker_does_not_run_as_root() -> None:
    (user,) = instructions("USER")

    assert user == "appuser"
    assert DOCKERFILE.index("\nUSER ") < DOCKERFILE.index("\nCMD ")


def test_the_data_is_a_volume_that_the_user_owns() -> None:
    assert "/var/lib/kafka/data" in json.loads(instructions("VOLUME")[0])
    assert "chown -R appuser:appuser /var/lib/kafka" in DOCKERFILE


def test_commands_are_in_exec_form_so_that_signals_arrive() -> None:
    assert isinstance(json.loads(instructions("CMD")[-1]), list)
    assert instructions("STOPSIGNAL") == ["SIGTERM"]


def test_the_health_check_asks_the_port_that_is_exposed(entrypoint: ModuleType) -> None:
    (check,) = instructions("HEALTHCHECK")
    command = json.loads(check[check.index("[") :])

    assert command[0].endswith("/python")
    compile(command[2], "healthcheck", "exec")
    (port,) = re.findall(r"127\.0\.0\.1:(\d+)/health/ready", command[2])
    assert port in instructions("EXPOSE")[0].split()
    assert entrypoint.DEFAULTS["KAFKA_HTTP_LISTENER"].endswith(f":{port}")


def test_the_build_stage_compiles_and_the_last_stage_has_no_compiler() -> None:
    build, final = DOCKERFILE.split("FROM python:3.11-slim AS build")[1].split("\nFROM ")

    assert "gcc" in build
    assert "gcc" not in final


def test_nothing_set_gives_a_broker_that_listens_on_all_addresses(entrypoint: ModuleType) -> None:
    config = BrokerConfig.from_texts(from_environment(entrypoint.settings({}, [])))

    (listener,) = config.resolved_listeners()
    assert listener.bind.host == ""
    assert listener.bind.port == 9092
    assert config.data_directories == ("/var/lib/kafka/data",)


def test_what_a_user_sets_wins_over_the_containers_defaults(entrypoint: ModuleType) -> None:
    given = entrypoint.variables_of_file("# c\nlog.dirs=/mine\nlisteners = PLAINTEXT://:1\n")

    assert entrypoint.settings({"KAFKA_HTTP_LISTENER": ""}, given) == {}


def test_a_missing_advertised_listener_is_warned_of(entrypoint: ModuleType) -> None:
    text = entrypoint.warning({}, [], "c0ffee")

    assert "PLAINTEXT://c0ffee:9092" in text
    assert "-e KAFKA_ADVERTISED_LISTENERS=" in text
    assert entrypoint.warning({"KAFKA_ADVERTISED_LISTENERS": "x"}, [], "c0ffee") is None
    assert entrypoint.warning({}, ["KAFKA_ADVERTISED_LISTENERS"], "c0ffee") is None


def test_the_mounted_file_is_read_if_it_is_there(entrypoint: ModuleType) -> None:
    assert entrypoint.command(["--override", "a=b"], True)[1:] == [
        "-m", "server", "serve",
        "--config", "/mnt/shared/config/server.properties",
        "--override", "a=b",
    ]  # fmt: skip
    assert "--config" not in entrypoint.command([], False)
