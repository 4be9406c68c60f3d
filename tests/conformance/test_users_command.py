"""`kompakt users ...` as an operator types it: the first user of a new broker, then by a login."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.broker_process import BrokerProcess
from tests.harness.typed_commands import TypedCommands

ADMIN = ("SCRAM-SHA-512", "admin", "admin-secret")


def client_file(folder: Path, mechanism: str, user: str, password: str) -> str:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    path = folder / f"{mechanism}-{user}.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        f"sasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={module} required username="{user}" \\\n password="{password}";\n'
    )
    return str(path)


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TypedCommands]:
    """Commands for a broker with a SASL listener alone, whose first user was added before its start."""
    folder = tmp_path_factory.mktemp("users")
    process = BrokerProcess(
        folder, {"sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN"}
    )
    process.overrides["listeners"] = f"SASL_PLAINTEXT://127.0.0.1:{process.port}"
    typed = TypedCommands(process)
    added = typed.run(
        "users", "add", "admin", "--password-stdin", "--data", str(process.data_dir),
        given="admin-secret\n",
    )  # fmt: skip
    assert (added.returncode, added.stdout) == (
        0,
        "user admin added (SCRAM-SHA-256, SCRAM-SHA-512)\n",
    ), added.stderr
    with process:
        typed.environment["KOMPAKT_COMMAND_CONFIG"] = client_file(folder, *ADMIN)
        yield typed


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_first_user_logs_in_by_each_mechanism(
    typed: TypedCommands, tmp_path: Path, mechanism: str
) -> None:
    config = client_file(tmp_path, mechanism, "admin", "admin-secret")
    assert typed.run("topics", "list", "--command-config", config).returncode == 0


def test_records_are_sent_and_read_by_a_login(typed: TypedCommands) -> None:
    typed.told("topics", "create", "mine")
    typed.told("produce", "mine", given="hello\n")
    assert "hello" in typed.told("consume", "mine")


def test_a_user_comes_changes_and_goes(typed: TypedCommands, tmp_path: Path) -> None:
    old = client_file(tmp_path, "SCRAM-SHA-256", "ann", "first")
    new = client_file(tmp_path, "SCRAM-SHA-512", "ann", "second")
    add = ("users", "add", "ann", "--password-stdin")
    only = ("--mechanism", "SCRAM-SHA-256", "--iterations", "4096")

    assert typed.run(*add, *only, given="first\n").stdout == "user ann added (SCRAM-SHA-256)\n"
    assert typed.run("users", "list", "--command-config", old).returncode == 0
    again = typed.run(*add, given="other\n")
    assert (again.returncode, again.stderr) == (
        1,
        "kompakt: user ann exists; kompakt users passwd changes its password\n",
    )
    typed.told("users", "passwd", "ann", "--password-stdin", given="second\n")
    listed = json.loads(typed.told("users", "list", "--json"))["users"]
    assert {"user": "ann", "mechanisms": [{"name": "SCRAM-SHA-256", "iterations": 8192}]} in listed

    refused = typed.run("users", "list", "--command-config", old)
    assert refused.returncode == 1
    assert refused.stderr == (
        "kompakt: login as ann by SCRAM-SHA-256: Authentication failed during authentication due to"
        " invalid credentials with SASL mechanism SCRAM-SHA-256\n"
    )
    assert typed.run("users", "list", "--command-config", new).returncode == 1
    assert typed.told("users", "remove", "ann") == "user ann removed\n"
    assert typed.run("users", "remove", "ann").stderr == "kompakt: there is no user ann\n"
    assert "ann" not in typed.told("users", "list")


def test_a_command_without_a_login_says_how_to_give_one(typed: TypedCommands) -> None:
    plain = TypedCommands(typed.broker)
    plain.environment.pop("KOMPAKT_COMMAND_CONFIG", None)
    refused = plain.run("users", "list")
    assert refused.returncode == 3
    assert "--command-config" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "given", "error"),
    [
        (("add", "x"), "", "standard input is not a terminal: add --password-stdin"),
        (("add", "x", "--password-stdin"), "\n", "the password is empty"),
        (
            ("add", "x", "--password-stdin", "--mechanism", "PLAIN"),
            "p\n",
            "--mechanism PLAIN: use SCRAM-SHA-256 or SCRAM-SHA-512",
        ),
        (
            ("passwd", "x", "--password-stdin", "--iterations", "1"),
            "p\n",
            "--iterations 1: choose a number from 4096 to 16384",
        ),
    ],
)
def test_wrong_arguments_are_one_sentence(
    typed: TypedCommands, arguments: tuple[str, ...], given: str, error: str
) -> None:
    ran = typed.run("users", *arguments, given=given)
    assert ran.returncode == 2
    assert ran.stderr.startswith(f"kompakt: {error}")


def test_the_data_of_a_running_broker_is_left_alone(typed: TypedCommands) -> None:
    data = str(typed.broker.data_dir)
    ran = typed.run("users", "add", "x", "--password-stdin", "--data", data, given="p\n")
    assert ran.returncode == 1
    assert data in ran.stderr
    assert "x" not in [
        each["user"] for each in json.loads(typed.told("users", "list", "--json"))["users"]
    ]
