"""Bad input at listeners with TLS and logins: an error for that peer, one line in the log, nothing else.

Each case attacks three times while an honest client uses the same listener.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from metrics.mistakes import MISTAKES
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest
from protocol.wire.error_codes import ErrorCode
from server.net.sparing_log import INTERVAL_SECONDS
from tests.harness.certificates import Certificates
from tests.harness.connection_server import until
from tests.harness.examples import not_quick
from tests.harness.raw_client import RawClient, encode_request
from tests.harness.sasl_login import ALICE, PLAIN_JAAS, handshake, plain_login, send_token
from tests.harness.scram_client import ScramClient
from tests.harness.served_broker import ServedBroker, batch_of, serving_broker

TIMES = 3
HUGE_BYTES = 100 << 20
WRONG_PASSWORDS = int(os.environ.get("KOMPAKT_WRONG_PASSWORDS", "10000"))
LOGINS_AT_ONCE = 20
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class World:
    """A broker with each kind of listener, and the certificates of its clients."""

    def __init__(self, served: ServedBroker, certificates: Certificates, folder: Path) -> None:
        self.served = served
        self.certificates = certificates
        self.folder = folder

    async def connect(self, listener: str, client: Path | None = None) -> RawClient:
        """Connect to a listener, with TLS if it has some."""
        tls = None if listener == "PLAINTEXT" else self.certificates.trust(client)
        return await RawClient.connect(*self.served.broker.addresses[listener], tls=tls)

    async def send_raw(self, listener: str, sent: bytes) -> bytes:
        """Send bytes without TLS. Returns what the broker sends until it closes."""
        reader, writer = await asyncio.open_connection(*self.served.broker.addresses[listener])
        writer.write(sent)
        try:
            return await asyncio.wait_for(reader.read(), 30)
        except ConnectionError:
            return b""
        finally:
            writer.close()

    @property
    def connections(self) -> int:
        return self.served.broker.listening.limits.count


@asynccontextmanager
async def a_world(folder: Path) -> AsyncIterator[World]:
    certificates = Certificates(folder / "certificates")
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,LOGIN://127.0.0.1:0,MUTUAL://127.0.0.1:0",
        "listener.security.protocol.map": "LOGIN:SASL_SSL,MUTUAL:SSL",
        "ssl.keystore.location": str(certificates.broker()),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.truststore.location": str(certificates.authority_file),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.login.plain.sasl.jaas.config": PLAIN_JAAS,
        "connection.failed.authentication.delay.ms": "0",
        "auto.create.topics.enable": "false",
    }
    async with serving_broker(folder / "data", **properties) as served:
        await served.create("honest")
        await served.produce("honest", batch_of(3))
        yield World(served, certificates, folder)


async def closes(client: RawClient) -> None:
    """Returns when the broker has closed the connection."""
    try:
        while await asyncio.wait_for(client._reader.read(1 << 16), 30):
            pass
    except (ConnectionError, ssl.SSLError):
        pass
    finally:
        client.close()


# The cases: each attacks once.


async def garbage(world: World) -> None:
    answer = await world.send_raw("SSL", os.urandom(1_000).replace(b"\x16", b"\x17"))
    assert len(answer) < 100


async def http(world: World) -> None:
    await world.send_raw("SSL", b"GET / HTTP/1.1\r\n\r\n")


async def plaintext(world: World) -> None:
    payload = encode_request(MetadataRequest(topics=None), 1, 1)
    await world.send_raw("SSL", struct.pack(">i", len(payload)) + payload)


async def tls_on_plaintext(world: World) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await RawClient.connect(
            *world.served.broker.addresses["PLAINTEXT"], tls=world.certificates.trust()
        )


async def foreign_certificate(world: World) -> None:
    stranger = Certificates(world.folder / "stranger").client("mallory")
    await certificate(world, stranger)


async def expired_certificate(world: World) -> None:
    path = world.folder / "expired.pem"
    issued = world.certificates.authority.issue_cert(
        "late@example.org", not_after=datetime.now(UTC) - timedelta(days=1)
    )
    issued.private_key_and_cert_chain_pem.write_to_path(str(path))
    await certificate(world, path)


async def no_certificate(world: World) -> None:
    await certificate(world, None)


async def certificate(world: World, path: Path | None) -> None:
    # With TLS 1.3 a client is connected before the broker has looked at its certificate.
    try:
        client = await world.connect("MUTUAL", path)
    except (ssl.SSLError, ConnectionError):
        return
    await closes(client)


async def token_before_handshake(world: World) -> None:
    client = await world.connect("LOGIN")
    client.send(SaslAuthenticateRequest(auth_bytes=ALICE), 2)
    await closes(client)


async def request_before_login(world: World) -> None:
    client = await world.connect("LOGIN")
    client.send(MetadataRequest(topics=None), 1)
    await closes(client)


async def request_amid_login(world: World) -> None:
    client = await world.connect("LOGIN")
    await handshake(client)
    client.send(MetadataRequest(topics=None), 1)
    await closes(client)


async def handshake_amid_login(world: World) -> None:
    client = await world.connect("LOGIN")
    await handshake(client, "SCRAM-SHA-256")
    await send_token(client, ScramClient("alice", "x").first())
    client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    await closes(client)


async def unknown_mechanism(world: World) -> None:
    client = await world.connect("LOGIN")
    answer = await handshake(client, "GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert set(answer.mechanisms) == set(MECHANISMS)
    await closes(client)


async def huge_login(world: World) -> None:
    client = await world.connect("LOGIN")
    await handshake(client)
    client.send_bytes(struct.pack(">i", HUGE_BYTES) + bytes(100_000))
    await closes(client)


async def wrong_password(world: World) -> None:
    client = await world.connect("LOGIN")
    answer = await plain_login(client, b"\0alice\0wrong")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Authentication failed: Invalid username or password"
    await closes(client)


async def malformed_token(world: World) -> None:
    client = await world.connect("LOGIN")
    answer = await plain_login(client, b"\xff\0\0\0\0")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    await closes(client)


async def left_before_handshake(world: World) -> None:
    (await world.connect("LOGIN")).close()


async def left_after_handshake(world: World) -> None:
    client = await world.connect("LOGIN")
    await handshake(client)
    client.close()


async def left_after_challenge(world: World) -> None:
    client = await world.connect("LOGIN")
    await handshake(client, "SCRAM-SHA-512")
    await send_token(client, ScramClient("alice", "x", "sha512").first())
    client.close()


async def left_amid_token(world: World) -> None:
    client = await world.connect("LOGIN")
    await handshake(client)
    client.send_bytes(struct.pack(">i", 100) + bytes(50))
    client.close()


async def left_without_answer(world: World) -> None:
    client = await world.connect("LOGIN")
    await handshake(client)
    client.send(SaslAuthenticateRequest(auth_bytes=ALICE), 2)
    client.close()


class Case(NamedTuple):
    """An attack, and the only line that it leaves in the log; None: it leaves none."""

    attack: Callable[[World], Awaitable[None]]
    line: str | None


CASES = (
    Case(garbage, "TLS handshake failed"),
    Case(http, "TLS handshake failed: the client speaks HTTP"),
    Case(plaintext, "TLS handshake failed: the client does not speak TLS"),
    Case(tls_on_plaintext, "TLS handshake on a listener without TLS"),
    Case(foreign_certificate, "TLS handshake failed: the client's certificate is not accepted"),
    Case(expired_certificate, "not accepted, certificate has expired"),
    Case(no_certificate, "TLS handshake failed: the client shows no certificate"),
    Case(token_before_handshake, "SASL_AUTHENTICATE during SASL handshake"),
    Case(request_before_login, "METADATA during SASL handshake"),
    Case(request_amid_login, "METADATA during SASL authentication"),
    Case(handshake_amid_login, "SASL_HANDSHAKE during SASL authentication"),
    Case(unknown_mechanism, "login refused"),
    Case(huge_login, "FrameTooLarge"),
    Case(wrong_password, "login refused, Authentication failed: Invalid username or password"),
    Case(malformed_token, "login refused, Invalid SASL/PLAIN response"),
    Case(left_before_handshake, None),
    Case(left_after_handshake, None),
    Case(left_after_challenge, None),
    Case(left_amid_token, None),
    Case(left_without_answer, None),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.attack.__name__)
async def test_bad_input_harms_its_own_peer_only(
    tmp_path: Path, case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    mistakes = MISTAKES.by_work()
    async with a_world(tmp_path) as world:
        honest = await world.connect("LOGIN")
        assert not (await plain_login(honest)).error_code
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            for _ in range(TIMES):
                await case.attack(world)
                await asks(honest)
            await until(lambda: world.connections == 1)
        await asks(honest)
        honest.close()
        assert [each.name for each in world.served.broker.topics.all()] == ["honest"]
        assert (await world.served.fetch("honest", 0)).high_watermark == 3

    lines = [each.getMessage() for each in caplog.records if each.name.startswith("server")]
    assert len(lines) == (case.line is not None), lines
    assert not case.line or case.line in lines[0]
    assert MISTAKES.by_work() == mistakes


async def asks(honest: RawClient) -> None:
    """Ask for the topics as an honest client."""
    answer = await honest.call(MetadataRequest(topics=None), 1, MetadataResponse)
    assert [each.name for each in answer.topics] == ["honest"]


@not_quick
async def test_wrong_passwords_without_end_cost_one_line_and_no_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0,LOGIN://127.0.0.1:0",
        "listener.security.protocol.map": "LOGIN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": PLAIN_JAAS,
        "connection.failed.authentication.delay.ms": "0",
    }
    async with serving_broker(tmp_path / "data", **properties) as served:
        address = served.broker.addresses["LOGIN"]
        left = iter(range(WRONG_PASSWORDS))
        loop = asyncio.get_running_loop()
        began_s = loop.time()

        async def guess() -> None:
            for number in left:
                client = await RawClient.connect(*address)
                answer = await plain_login(client, f"\0alice\0guess-{number}".encode())
                assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
                client.close()

        with caplog.at_level(logging.WARNING):
            await asyncio.gather(*(guess() for _ in range(LOGINS_AT_ONCE)))
        honest = await RawClient.connect(*address)
        assert not (await plain_login(honest)).error_code
        honest.close()
        await until(lambda: served.broker.listening.limits.count == 0)
        assert not served.broker.logins._passwords._remembered
        assert len(served.broker.warnings._recent) == 1

    lines = [each for each in caplog.records if "login refused" in each.getMessage()]
    assert 1 <= len(lines) <= 1 + (loop.time() - began_s) // INTERVAL_SECONDS
