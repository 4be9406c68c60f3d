"""Commands that log in to a broker by SASL, each over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cli.base.access import PASSWORD_VARIABLE
from cli.commands import run_command
from server.security.scram_credentials import ScramMechanism
from tests.harness.sasl_login import sasl_broker, set_password
from tests.harness.served_broker import ServedBroker
from tests.harness.token_issuer import TokenIssuer

pytestmark = pytest.mark.filterwarnings(
    # kafka-python causes it when it is imported.
    "ignore:(read|open)_text is deprecated:DeprecationWarning"
)

CONFIG = """\
security.protocol=SASL_PLAINTEXT
sasl.mechanism={mechanism}
sasl.jaas.config=org.apache.kafka.common.security.Login required username="{user}" password="{password}";
"""


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ServedBroker]:
    async with sasl_broker(tmp_path / "data") as served:
        for mechanism in ScramMechanism:
            await set_password(served, "carol", "carol-secret", mechanism)
        await served.create("orders")
        yield served


async def list_topics(broker: ServedBroker, *options: str, listener: str = "SASL") -> int:
    host, port = broker.broker.addresses[listener]
    arguments = ["topics", "list", "--bootstrap-server", f"{host}:{port}", *options]
    return await asyncio.to_thread(run_command, arguments)


def config(tmp_path: Path, mechanism: str, user: str, password: str) -> str:
    path = tmp_path / "client.properties"
    path.write_text(CONFIG.format(mechanism=mechanism, user=user, password=password))
    return f"--command-config={path}"


@pytest.mark.parametrize(
    ("mechanism", "user"),
    [("PLAIN", "alice"), ("SCRAM-SHA-256", "carol"), ("SCRAM-SHA-512", "carol")],
)
async def test_a_command_logs_in_by_each_mechanism(
    broker: ServedBroker,
    tmp_path: Path,
    mechanism: str,
    user: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert await list_topics(broker, config(tmp_path, mechanism, user, f"{user}-secret")) == 0
    assert "orders" in capsys.readouterr().out


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_wrong_password_is_said_in_one_sentence(
    broker: ServedBroker, tmp_path: Path, mechanism: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await list_topics(broker, config(tmp_path, mechanism, "carol", "wrong")) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"kompakt: login as carol by {mechanism}: Authentication failed")


async def test_the_short_form_logs_in_with_the_password_of_the_environment(
    broker: ServedBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "carol-secret")
    assert await list_topics(broker, "--user", "carol") == 0
    assert "orders" in capsys.readouterr().out


async def test_a_command_without_login_learns_that_the_listener_wants_one(
    broker: ServedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await list_topics(broker) == 3
    assert "closed the connection" in capsys.readouterr().err


async def test_a_login_where_there_is_none_to_do_is_an_error(
    broker: ServedBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "carol-secret")
    assert await list_topics(broker, "--user", "carol", listener="PLAINTEXT") == 1
    assert "this listener has no SASL: connect without a login" in capsys.readouterr().err


async def test_records_are_written_and_read_by_a_user(
    broker: ServedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host, port = broker.broker.addresses["SASL"]
    lines = tmp_path / "lines"
    lines.write_text("k:v\n")
    options = ["--bootstrap-server", f"{host}:{port}"]
    options.append(config(tmp_path, "SCRAM-SHA-512", "carol", "carol-secret"))
    produce = ["produce", "orders", str(lines), "--key-separator", ":", *options]
    assert await asyncio.to_thread(run_command, produce) == 0
    consume = ["consume", "orders", "--partition", "0", *options]
    assert await asyncio.to_thread(run_command, consume) == 0
    out = capsys.readouterr().out
    assert "1 record stored" in out
    assert out.endswith("v\n")


TOKEN_CONFIG = """\
security.protocol=SASL_PLAINTEXT
sasl.mechanism=OAUTHBEARER
sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
sasl.oauthbearer.token.endpoint.url={url}
"""


@pytest.fixture
async def token_broker(tmp_path: Path, issuer: TokenIssuer) -> AsyncIterator[ServedBroker]:
    properties = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": issuer.write(tmp_path / "keys.json"),
    }
    async with sasl_broker(tmp_path / "data", **properties) as served:
        await served.create("orders")
        yield served


@pytest.fixture(scope="module")
def issuer() -> TokenIssuer:
    return TokenIssuer()


def token_config(tmp_path: Path, token: str) -> str:
    token_file, path = tmp_path / "the token", tmp_path / "client.properties"
    token_file.write_text(token + "\n")
    path.write_text(TOKEN_CONFIG.format(url=token_file.as_uri()))
    return f"--command-config={path}"


async def test_a_command_logs_in_with_the_token_in_a_file(
    token_broker: ServedBroker,
    issuer: TokenIssuer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert await list_topics(token_broker, token_config(tmp_path, issuer.token())) == 0
    assert "orders" in capsys.readouterr().out


async def test_records_are_written_and_read_with_a_token(
    token_broker: ServedBroker,
    issuer: TokenIssuer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    host, port = token_broker.broker.addresses["SASL"]
    lines = tmp_path / "lines"
    lines.write_text("k:v\n")
    options = ["--bootstrap-server", f"{host}:{port}", token_config(tmp_path, issuer.token())]
    produce = ["produce", "orders", str(lines), "--key-separator", ":", *options]
    assert await asyncio.to_thread(run_command, produce) == 0
    consume = ["consume", "orders", "--partition", "0", *options]
    assert await asyncio.to_thread(run_command, consume) == 0
    assert capsys.readouterr().out.endswith("v\n")


async def test_a_refused_token_is_said_in_one_sentence_without_the_token(
    token_broker: ServedBroker,
    issuer: TokenIssuer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    expired = issuer.token(lifetime_s=-100, iat=1)
    assert await list_topics(token_broker, token_config(tmp_path, expired)) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"kompakt: login with the token in {tmp_path}/the token by OAUTHBEARER: "
    )
    assert expired not in line
