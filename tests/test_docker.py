"""Checks of the container image's files that need no running container."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from server.config.config import BrokerConfig
from server.config.sources import from_environment
from storage.formats.config_property import ConfigError
from tests.harness.certificates import Certificates
from tests.harness.served_broker import serving_broker

DOCKER = Path(__file__).resolve().parents[1] / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text("utf-8")


@pytest.fixture(scope="module")
def entrypoint() -> ModuleType:
    return program("entrypoint")


@pytest.fixture(scope="module")
def healthcheck() -> ModuleType:
    return program("healthcheck")


def program(name: str) -> ModuleType:
    """Returns one of the image's own programs."""
    spec = importlib.util.spec_from_file_location(name, DOCKER / f"{name}.py")
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


def test_kompakt_is_found_without_its_path() -> None:
    (path,) = [each for each in instructions("ENV") if each.startswith("PATH=")]

    assert path.split("=")[1].split(":")[0] == "/opt/kompakt/bin"
    assert "python -m venv /opt/kompakt" in DOCKERFILE


def test_the_health_check_that_the_image_runs_is_the_one_in_it() -> None:
    (check,) = instructions("HEALTHCHECK")
    command = json.loads(check[check.index("[") :])

    assert command[0] == "/opt/kompakt/bin/python"
    assert f"docker/healthcheck.py {command[-1]}\n" in DOCKERFILE
    assert "9644" in instructions("EXPOSE")[0].split()


def test_the_health_check_knows_the_defaults_of_the_entry_point(
    entrypoint: ModuleType, healthcheck: ModuleType
) -> None:
    for name, value in healthcheck.DEFAULTS.items():
        assert entrypoint.DEFAULTS["KAFKA_" + name.upper().replace(".", "_")] == value


@pytest.mark.parametrize(
    ("arguments", "environment", "file", "expected"),
    [
        ([], {}, "", ("127.0.0.1", 9644)),
        ([], {"KAFKA_HTTP_LISTENER": "0.0.0.0:8080"}, "", ("127.0.0.1", 8080)),
        ([], {"KAFKA_HTTP_LISTENER": "[::]:8080"}, "", ("::1", 8080)),
        ([], {"KAFKA_HTTP_LISTENER": "10.0.0.7:80"}, "", ("10.0.0.7", 80)),
        ([], {}, "# http.listener=:1\nhttp.listener = :7000\n", ("127.0.0.1", 7000)),
        ([], {"KAFKA_HTTP_LISTENER": ":2"}, "http.listener=:1", ("127.0.0.1", 2)),
        (["--override", "http.listener=:3"], {"KAFKA_HTTP_LISTENER": ":2"}, "", ("127.0.0.1", 3)),
        (["--override=http.listener=:4"], {}, "", ("127.0.0.1", 4)),
        ([], {"KAFKA_HTTP_LISTENER": ""}, "", None),
    ],
)
def test_the_health_check_asks_where_the_broker_listens(
    healthcheck: ModuleType,
    arguments: list[str],
    environment: dict[str, str],
    file: str,
    expected: tuple[str, int] | None,
) -> None:
    text = healthcheck.configured("http.listener", arguments, environment, file)

    assert healthcheck.address_in(text) == expected


async def test_the_health_check_says_what_the_broker_says(
    healthcheck: ModuleType, tmp_path: Path
) -> None:
    async def asked(**environment: str) -> str | None:
        wrong: str | None = await asyncio.to_thread(healthcheck.failure, [], environment, "")
        return wrong

    async with serving_broker(tmp_path, http_listener="127.0.0.1:0") as served:
        broker = served.broker
        here = f"127.0.0.1:{broker.http_port}"
        kafka = "PLAINTEXT://127.0.0.1:{}".format(broker.addresses["PLAINTEXT"][1])
        assert await asked(KAFKA_HTTP_LISTENER=here) is None
        assert await asked(KAFKA_HTTP_LISTENER="", KAFKA_LISTENERS=kafka) is None
        broker._state = "stopping"
        assert await asked(KAFKA_HTTP_LISTENER=here) == "stopping"

    assert "refused" in str(await asked(KAFKA_HTTP_LISTENER=here))
    assert "refused" in str(await asked(KAFKA_HTTP_LISTENER="", KAFKA_LISTENERS=kafka))
    assert "is not host:port" in str(await asked(KAFKA_HTTP_LISTENER="nonsense"))


@pytest.mark.parametrize("auth", ["none", "required"])
async def test_the_health_check_asks_over_tls(
    healthcheck: ModuleType, tmp_path: Path, auth: str
) -> None:
    certificates = Certificates(tmp_path / "certificates")
    secured = {
        "http_listener": "https://127.0.0.1:0",
        "http_authentication": "basic",
        "ssl_keystore_location": str(certificates.broker()),
        "ssl_truststore_location": str(certificates.authority_file),
        "listener_name_http_ssl_client_auth": auth,
    }
    async with serving_broker(tmp_path / "data", **secured) as served:
        environment = {
            "KAFKA_HTTP_LISTENER": f"https://127.0.0.1:{served.broker.http_port}",
            "KAFKA_LISTENER_NAME_HTTP_SSL_CLIENT_AUTH": auth,
        }
        assert await asyncio.to_thread(healthcheck.failure, [], environment, "") is None

    assert "refused" in str(await asyncio.to_thread(healthcheck.failure, [], environment, ""))


def test_the_build_stage_compiles_and_the_last_stage_has_no_compiler() -> None:
    build, final = DOCKERFILE.split("FROM python:3.11-slim AS build")[1].split("\nFROM ")

    assert "gcc" in build
    assert "gcc" not in final


def test_without_permission_the_container_does_not_serve_everyone(entrypoint: ModuleType) -> None:
    settings = entrypoint.settings({}, [])

    with pytest.raises(ConfigError, match=r"allow\.unauthenticated\.listeners=true"):
        BrokerConfig.from_texts(from_environment(settings))
    assert settings["KAFKA_HTTP_LISTENER"] == "127.0.0.1:9644"


@pytest.mark.parametrize(
    ("environment", "file", "expected"),
    [
        ({}, "", False),
        ({}, "allow.unauthenticated.listeners = true\n", True),
        ({"KAFKA_ALLOW_UNAUTHENTICATED_LISTENERS": "TRUE"}, "", True),
        (
            {"KAFKA_ALLOW_UNAUTHENTICATED_LISTENERS": "false"},
            "allow.unauthenticated.listeners=true",
            False,
        ),
    ],
)
def test_the_permission_is_read_from_the_environment_and_the_file(
    entrypoint: ModuleType, environment: dict[str, str], file: str, expected: bool
) -> None:
    assert entrypoint.allows_everyone(environment, file) is expected


def test_with_permission_the_broker_listens_on_all_addresses(entrypoint: ModuleType) -> None:
    given = {entrypoint.ALLOW: "true"}
    settings = entrypoint.settings(given, [], is_open=True)
    config = BrokerConfig.from_texts(from_environment(given | settings))

    http = config.resolved_http_listener()
    assert http is not None
    assert http.host == "0.0.0.0"

    (listener,) = config.resolved_listeners()
    assert listener.bind.host == ""
    assert listener.bind.port == 9092
    assert config.data_directories == ("/var/lib/kafka/data",)


def test_a_users_setting_wins_over_the_containers_default(entrypoint: ModuleType) -> None:
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
        "-m", "cli", "serve",
        "--config", "/mnt/shared/config/server.properties",
        "--override", "a=b",
    ]  # fmt: skip
    assert "--config" not in entrypoint.command([], False)
