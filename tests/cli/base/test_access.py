"""The options by which every command reaches a secured broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest
import typer

from cli.base.access import PASSWORD_VARIABLE, Access, current, with_access
from cli.base.command_end import CommandFailed
from cli.commands import app as kompakt

OPTIONS = {"--command-config", "--user", "--tls-ca"}


def test_every_command_with_a_broker_has_the_options_of_access() -> None:
    found = dict(options_of(typer.main.get_command(kompakt), "kompakt"))
    with_broker = {name for name, options in found.items() if "--bootstrap-server" in options}
    assert len(with_broker) > 15
    # Spark takes Kafka's option names, not these.
    assert [
        name for name in with_broker if not found[name] >= OPTIONS and "pipeline" not in name
    ] == []


def test_no_command_has_two_options_of_one_name() -> None:
    for command in commands_of(typer.main.get_command(kompakt)):
        names = [option for parameter in command.params for option in parameter.opts]
        assert len(names) == len(set(names)), command.name


def commands_of(command: Any) -> Iterator[Any]:
    """Yields a command and all commands below it."""
    yield command
    for below in getattr(command, "commands", {}).values():
        yield from commands_of(below)


def options_of(command: Any, name: str) -> Iterator[tuple[str, set[str]]]:
    """Yields the name of each command with the names of its options."""
    for below, each in getattr(command, "commands", {}).items():
        yield from options_of(each, f"{name} {below}")
    yield name, {option for parameter in command.params for option in parameter.opts}


def access_of(**options: str) -> Access:
    """Returns the access of a command with these options."""
    found: list[Access] = []

    @with_access
    def command() -> None:
        found.append(current())

    copy_context().run(command, **options)
    return found[0]


def config_of(tmp_path: Path, text: str) -> str:
    path = tmp_path / "client.properties"
    path.write_text(text)
    return str(path)


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "secret of the variable")


JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required"
    ' username="alice" password="it\'s \\"quoted\\"; = and so on";'
)


def test_without_options_a_command_connects_in_plaintext() -> None:
    assert access_of() == Access()
    assert access_of().kafka_python_settings() == {"security_protocol": "PLAINTEXT"}


def test_a_file_of_client_properties_says_how_to_log_in(tmp_path: Path) -> None:
    text = (
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={JAAS}\n"
    )
    access = access_of(command_config=config_of(tmp_path, text.replace("\\", "\\\\")))
    assert access.kafka_python_settings() == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": 'it\'s "quoted"; = and so on',
    }


def test_the_user_option_logs_in_with_the_password_of_the_environment() -> None:
    login = access_of(login_user="bob").login
    assert login is not None
    assert (login.mechanism, login.user) == ("SCRAM-SHA-256", "bob")
    assert login.password == "secret of the variable"


def test_the_user_option_overrides_the_user_of_the_file_and_keeps_its_mechanism(
    tmp_path: Path,
) -> None:
    text = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n" + (
        'sasl.jaas.config=PlainLoginModule required username="alice" password="a";'
    )
    login = access_of(command_config=config_of(tmp_path, text), login_user="bob").login
    assert login is not None
    assert (login.mechanism, login.user) == ("PLAIN", "bob")


def test_a_secret_is_not_shown() -> None:
    assert "secret" not in repr(access_of(login_user="bob"))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("security.protocol=TLS", "security.protocol=TLS is not one of PLAINTEXT"),
        ("security.protocol=SASL_PLAINTEXT", r"sasl.mechanism=\(not set\)"),
        ("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI", "kompakt logs in by PLAIN"),
        (
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN",
            "sasl.jaas.config: Login module not specified",
        ),
        (
            "security.protocol=SSL\nssl.truststore.location=/no/such",
            "ssl.truststore.location=/no/such",
        ),
        ("security.protocol=\\uZZZZ", "--command-config .*client.properties"),
    ],
)
def test_what_cannot_work_is_refused_with_the_name_of_the_property(
    tmp_path: Path, text: str, error: str
) -> None:
    with pytest.raises(CommandFailed, match=error):
        access_of(command_config=config_of(tmp_path, text))


def test_a_store_that_is_not_pem_is_refused_with_the_command_that_converts_it(
    tmp_path: Path,
) -> None:
    store = tmp_path / "trust.jks"
    store.write_bytes(bytes.fromhex("feedfeed") + bytes(100))
    text = f"security.protocol=SSL\nssl.truststore.location={store}"
    with pytest.raises(CommandFailed, match="keytool -importkeystore"):
        access_of(command_config=config_of(tmp_path, text))


def test_the_options_do_not_reach_the_command() -> None:
    app = typer.Typer()
    seen: list[str] = []

    @app.command()
    @with_access
    def command(name: str) -> None:
        seen.append(name)

    app(["orders", "--user", "bob"], standalone_mode=False)
    assert seen == ["orders"]
