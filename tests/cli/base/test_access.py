"""The options by which every command reaches a secured broker."""

from __future__ import annotations

import hashlib
import ssl
import struct
from collections.abc import Iterator
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest
import typer
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from cli.base.access import PASSWORD_VARIABLE, current, with_access
from cli.base.command_end import CommandFailed
from cli.commands import app as kompakt
from server.client.access import Access
from server.security.jks import MAGIC, WHITENER
from tests.harness.certificates import Certificates, as_pkcs12

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


BY_TOKEN = (
    "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url="
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
        (f"{BY_TOKEN}", r"token.endpoint.url=\(not set\): .* write file:///PATH"),
        (f"{BY_TOKEN}https://issuer/token", "from a file: write file:///PATH"),
        (f"{BY_TOKEN}file://host/token", "from a file: write file:///PATH"),
        (f"{BY_TOKEN}file:///no/such", "token.endpoint.url: /no/such: No such file"),
        (f"{BY_TOKEN}file:///dev/null", "/dev/null has no token"),
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


def test_the_user_option_cannot_replace_a_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a.b.c")
    text = f"{BY_TOKEN}{(tmp_path / 'token').as_uri()}"
    with pytest.raises(CommandFailed, match=r"--user bob: .* the token names the user"):
        access_of(command_config=config_of(tmp_path, text), login_user="bob")


def shown_to(server: ssl.SSLContext, client: ssl.SSLContext) -> bytes | None:
    """Perform a handshake in memory. Returns the certificate that the client has shown."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (ours, theirs):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return theirs.getpeercert(binary_form=True)


def jks_of(certificate: bytes, password: str) -> bytes:
    """Returns a JKS trust store with one certificate in DER."""
    entry = struct.pack(">iH1sqH5si", 2, 1, b"a", 0, 5, b"X.509", len(certificate)) + certificate
    body = MAGIC + struct.pack(">ii", 2, 1) + entry
    secret = password.encode("utf-16-be") + WHITENER
    return body + hashlib.sha1(secret + body, usedforsecurity=False).digest()


@pytest.mark.parametrize("kind", ["PEM", "PKCS12", "JKS"])
def test_stores_of_every_kind_open_a_connection_with_tls(tmp_path: Path, kind: str) -> None:
    certificates = Certificates(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates.broker())
    server.load_verify_locations(certificates.authority_file)
    server.verify_mode = ssl.CERT_REQUIRED
    own, trusted = certificates.client(), certificates.authority_file
    shown = x509.load_pem_x509_certificates(own.read_bytes())[0].public_bytes(Encoding.DER)
    if kind != "PEM":
        own = as_pkcs12(own, "own-secret")
    if kind == "JKS":
        (authority,) = x509.load_pem_x509_certificates(trusted.read_bytes())
        trusted = tmp_path / "trust.jks"
        trusted.write_bytes(jks_of(authority.public_bytes(Encoding.DER), "trust-secret"))
    text = (
        f"security.protocol=SSL\nssl.truststore.location={trusted}\n"
        f"ssl.truststore.password=trust-secret\nssl.keystore.location={own}\n"
        "ssl.keystore.password=own-secret\n"
    )

    client = access_of(command_config=config_of(tmp_path, text)).tls

    assert client is not None
    assert shown_to(server, client) == shown


@pytest.mark.parametrize("name", ["truststore", "keystore"])
@pytest.mark.parametrize("content", [MAGIC + bytes(100), b"0" + bytes(100), b"no store"])
def test_a_store_that_cannot_be_read_is_named_without_its_password(
    tmp_path: Path, name: str, content: bytes
) -> None:
    store = tmp_path / "store"
    store.write_bytes(content)
    text = (
        f"security.protocol=SSL\nssl.{name}.location={store}\nssl.{name}.password=a-secret-word\n"
    )

    with pytest.raises(CommandFailed, match=f"ssl.{name}.location={store}") as failed:
        access_of(command_config=config_of(tmp_path, text))
    assert "a-secret-word" not in str(failed.value)


def test_the_options_do_not_reach_the_command() -> None:
    app = typer.Typer()
    seen: list[str] = []

    @app.command()
    @with_access
    def command(name: str) -> None:
        seen.append(name)

    app(["orders", "--user", "bob"], standalone_mode=False)
    assert seen == ["orders"]
