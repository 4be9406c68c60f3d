"""SaslAuthenticate: logins by PLAIN and SCRAM over real sockets, what they allow, and how they end."""

from __future__ import annotations

import asyncio
import json
import logging
import struct
import time
from pathlib import Path

import pytest

from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from protocol.wire.error_codes import ErrorCode
from protocol.wire.schema import Message, copied
from server.net.connection import Connection
from server.runtime.clock import SystemClock
from server.security.principal import ANONYMOUS, user
from server.security.sasl import logins
from server.security.scram_credentials import ScramMechanism
from tests.harness.examples import not_quick
from tests.harness.raw_client import RawClient, encode_request
from tests.harness.sasl_login import (
    ALICE,
    handshake,
    plain_login,
    sasl_broker,
    scram_login,
    send_token,
    set_password,
)
from tests.harness.scram_client import ScramClient
from tests.harness.served_broker import ServedBroker, serving_broker
from tests.harness.topics_world import FixedClock

NONE = ErrorCode.NONE
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
METADATA = MetadataRequest(topics=(), allow_auto_topic_creation=False)
WRONG_PASSWORD = "Authentication failed: Invalid username or password"


def connection_of(served: ServedBroker) -> Connection:
    """Returns the only connection to the SASL listener."""
    listeners = served.broker.listening._listeners
    assert listeners is not None
    (found,) = (each for each in listeners._shared.connections if each.sasl is not None)
    return found


async def serves(client: RawClient) -> bool:
    return bool((await client.call(METADATA, 9, MetadataResponse)).brokers)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_outside_of_a_sasl_listener_there_is_no_login(tmp_path: Path, version: int) -> None:
    request = SaslAuthenticateRequest(auth_bytes=ALICE)
    async with serving_broker(tmp_path) as served:
        response = await served.call(request, version, SaslAuthenticateResponse)
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert response.error_message == (
            "SaslAuthenticate request received after successful authentication"
        )


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_right_password_sets_the_principal(tmp_path: Path, version: int) -> None:
    async with sasl_broker(tmp_path) as served:
        client = await served.connect("SASL")
        await handshake(client)
        assert connection_of(served).principal == ANONYMOUS
        response = await send_token(client, ALICE, version)
        assert (response.error_code, response.error_message) == (NONE, "")
        assert response.session_lifetime_ms == 0
        assert connection_of(served).principal == user("alice")
        assert await serves(client)


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"\0alice\0wrong", WRONG_PASSWORD),
        (b"\0nobody\0alice-secret", WRONG_PASSWORD),
        (b"\0alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (
            b"root\0alice\0alice-secret",
            "Authentication failed: Client requested an authorization id that is different from"
            " username",
        ),
    ],
)
async def test_a_refused_login_gets_kafkas_text_and_the_connection_ends(
    tmp_path: Path, token: bytes, text: str
) -> None:
    async with sasl_broker(tmp_path) as served:
        client = await served.connect("SASL")
        response = await plain_login(client, token)
        assert (response.error_code, response.error_message) == (FAILED, text)
        assert await client.is_closed()


@pytest.mark.parametrize("mechanism", ScramMechanism)
async def test_scram_users_log_in_by_scram_and_by_plain(
    tmp_path: Path, mechanism: ScramMechanism
) -> None:
    async with sasl_broker(tmp_path) as served:
        await set_password(served, "carol", "pencil", mechanism)
        client = await served.connect("SASL")
        assert (await scram_login(client, "carol", "pencil", mechanism)).error_code == NONE
        assert await serves(client)
        for _ in range(2):
            client = await served.connect("SASL")
            assert (await plain_login(client, b"\0carol\0pencil")).error_code == NONE
            assert await serves(client)
        client = await served.connect("SASL")
        wrong = await plain_login(client, b"\0carol\0pencils")
        assert (wrong.error_code, wrong.error_message) == (FAILED, WRONG_PASSWORD)


@pytest.mark.parametrize("name", ["carol", "nobody"])
@pytest.mark.parametrize("mechanism", ScramMechanism)
async def test_an_unknown_user_looks_like_a_wrong_password(
    tmp_path: Path, name: str, mechanism: ScramMechanism
) -> None:
    async with sasl_broker(tmp_path) as served:
        await set_password(served, "carol", "pencil", mechanism)
        client = await served.connect("SASL")
        response = await scram_login(client, name, "wrong", mechanism)
        assert (response.error_code, response.error_message) == (
            FAILED,
            "Authentication failed during authentication due to invalid credentials with SASL"
            f" mechanism {mechanism.sasl_name}",
        )
        assert await client.is_closed()


async def test_a_new_password_holds_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async with sasl_broker(tmp_path) as served:
        await set_password(served, "carol", "old")
        await set_password(served, "carol", "new")
        assert (
            await scram_login(await served.connect("SASL"), "carol", "old")
        ).error_code == FAILED
        assert (await scram_login(await served.connect("SASL"), "carol", "new")).error_code == NONE
    async with sasl_broker(tmp_path) as served:
        assert (await scram_login(await served.connect("SASL"), "carol", "new")).error_code == NONE


@pytest.mark.parametrize(
    ("request_", "version"),
    [(METADATA, 9), (ListGroupsRequest(), 4), (SaslAuthenticateRequest(auth_bytes=ALICE), 2)],
)
async def test_before_the_handshake_other_requests_close_the_connection(
    tmp_path: Path, request_: Message, version: int
) -> None:
    async with sasl_broker(tmp_path) as served:
        client = await served.connect("SASL")
        client.send(request_, version)
        assert await client.is_closed()


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (METADATA, 9),
        (ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3),
        (SaslHandshakeRequest(mechanism="PLAIN"), 1),
    ],
)
async def test_between_handshake_and_tokens_other_requests_close_the_connection(
    tmp_path: Path, request_: Message, version: int
) -> None:
    async with sasl_broker(tmp_path) as served:
        client = await served.connect("SASL")
        await handshake(client)
        client.send(request_, version)
        assert await client.is_closed()


async def test_versions_may_be_asked_before_the_handshake(tmp_path: Path) -> None:
    async with sasl_broker(tmp_path) as served:
        client = await served.connect("SASL")
        response = await client.call(
            ApiVersionsRequest(client_software_name="a", client_software_version="1"),
            3,
            ApiVersionsResponse,
        )
        assert {17, 36, 50, 51} <= {each.api_key for each in response.api_keys}
        assert (await plain_login(client)).error_code == NONE


async def test_requests_after_a_refused_login_are_not_served(tmp_path: Path) -> None:
    """They were sent before the answer, so they arrive while the broker holds it back."""
    async with sasl_broker(tmp_path) as served:
        client = await served.connect("SASL")
        await handshake(client)
        request = SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong")
        correlation_id = client.send(request, 2)
        for _ in range(5):
            client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            client.send(METADATA, 9)
        response = await client.receive(SaslAuthenticateResponse, 2, correlation_id)
        assert response.error_code == FAILED
        assert await client.is_closed()
        assert served.broker.requests.held_bytes == 0


async def test_the_answer_to_a_refused_login_is_held_back_and_no_other_client_waits(
    tmp_path: Path,
) -> None:
    async with sasl_broker(tmp_path, connection_failed_authentication_delay_ms="700") as served:
        refused, other = await served.connect("SASL"), await served.connect("SASL")
        await handshake(refused)
        began_s = time.monotonic()
        waiting = asyncio.ensure_future(send_token(refused, b"\0alice\0wrong"))
        assert (await plain_login(other)).error_code == NONE
        assert await serves(other)
        assert not waiting.done()
        assert (await waiting).error_code == FAILED
        assert time.monotonic() - began_s >= 0.7


def size(count: int) -> bytes:
    return struct.pack(">i", count)


async def test_a_large_frame_is_refused_before_it_is_received(tmp_path: Path) -> None:
    async with sasl_broker(tmp_path) as served:
        for first in (b"", encode_request(SaslHandshakeRequest(mechanism="PLAIN"), 1, 1)):
            client = await served.connect("SASL")
            if first:
                client.send_frame(first)
                await client.receive_frame()
            client.send_bytes(size(524_289))
            assert await client.is_closed()
        assert served.broker.probe.listeners["SASL"].protocol_errors == 2


async def test_an_authenticated_client_may_send_large_requests(tmp_path: Path) -> None:
    properties = {"sasl.server.max.receive.size": "1000"}
    async with sasl_broker(tmp_path, **properties) as served:
        client = await served.connect("SASL")
        assert (await plain_login(client)).error_code == NONE
        names = tuple("x" * 200 for _ in range(20))
        request = ListGroupsRequest(states_filter=names)
        assert len(encode_request(request, 4, 1)) > 1000
        assert (await client.call(request, 4, ListGroupsResponse)).error_code == NONE
        client = await served.connect("SASL")
        client.send(request, 4)
        assert await client.is_closed()


@pytest.mark.parametrize("with_handshake", [False, True])
async def test_an_unfinished_login_ends_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_handshake: bool
) -> None:
    monkeypatch.setattr("server.net.listener.LOGIN_SECONDS_MAX", 0.2)
    monkeypatch.setattr(logins, "LOGIN_SECONDS_MAX", 0.2)
    async with sasl_broker(tmp_path) as served:
        finished, unfinished = await served.connect("SASL"), await served.connect("SASL")
        await plain_login(finished)
        if with_handshake:
            await handshake(unfinished)
        assert await unfinished.is_closed()
        assert await serves(finished)


# Tokens without requests around them: SaslHandshake v0.


async def raw_token(client: RawClient, token: bytes) -> bytes:
    client.send_frame(token)
    return await client.receive_frame()


async def test_raw_tokens_follow_the_oldest_handshake(tmp_path: Path) -> None:
    async with sasl_broker(tmp_path) as served:
        client = await served.connect("SASL")
        await handshake(client, version=0)
        assert await raw_token(client, ALICE) == b""
        assert await serves(client)
        assert connection_of(served).principal == user("alice")


async def test_raw_tokens_of_scram(tmp_path: Path) -> None:
    async with sasl_broker(tmp_path) as served:
        await set_password(served, "carol")
        client = await served.connect("SASL")
        await handshake(client, "SCRAM-SHA-256", version=0)
        scram = ScramClient("carol", "pencil")
        challenge = await raw_token(client, scram.first())
        assert scram.is_signed(await raw_token(client, scram.final(challenge)))
        assert await serves(client)


async def test_a_wrong_raw_token_closes_the_connection(tmp_path: Path) -> None:
    async with sasl_broker(tmp_path) as served:
        for token in (b"\0alice\0wrong", b"", b"\0"):
            client = await served.connect("SASL")
            await handshake(client, version=0)
            client.send_frame(token)
            assert await client.is_closed()


# Sessions.


class SteppedClock(SystemClock):
    """A clock whose monotonic time moves only when the test moves it."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


async def test_a_session_ends_unless_the_client_logs_in_again(tmp_path: Path) -> None:
    properties = {"listener.name.sasl.plain.connections.max.reauth.ms": "60000"}
    async with sasl_broker(tmp_path, **properties) as served:
        served.broker.logins._clock = clock = SteppedClock()
        client = await served.connect("SASL")
        assert (await plain_login(client)).session_lifetime_ms == 60_000
        clock.now_s += 59
        assert (await plain_login(client)).session_lifetime_ms == 60_000
        clock.now_s += 59
        assert await serves(client)
        clock.now_s += 2
        client.send(METADATA, 9)
        assert await client.is_closed()
        assert served.broker.probe.listeners["SASL"].expired == 1
        counts = served.broker.probe.logins["SASL", "PLAIN"]
        assert (counts.succeeded, counts.succeeded_again) == (1, 1)


async def test_another_user_or_a_wrong_password_ends_a_session(tmp_path: Path) -> None:
    properties = {"connections.max.reauth.ms": "60000"}
    async with sasl_broker(tmp_path, **properties) as served:
        for token, text in (
            (b"\0bob\0bob-secret", "Cannot change principals during re-authentication"),
            (b"\0alice\0wrong", WRONG_PASSWORD),
        ):
            client = await served.connect("SASL")
            await plain_login(client)
            response = await plain_login(client, token)
            assert response.error_code == FAILED
            assert text in (response.error_message or "")
            assert await client.is_closed()
        assert served.broker.probe.logins["SASL", "PLAIN"].failed_again == 2


async def test_a_login_too_soon_after_the_last_is_refused_and_the_session_holds(
    tmp_path: Path,
) -> None:
    properties = {"connections.max.reauth.ms": "60000"}
    async with sasl_broker(tmp_path, **properties) as served:
        client = await served.connect("SASL")
        await plain_login(client)
        await plain_login(client)
        request = SaslHandshakeRequest(mechanism="PLAIN")
        response = await client.call(request, 1, SaslHandshakeResponse)
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await serves(client)


# Counts and logs.


async def test_logins_are_counted_by_listener_and_mechanism(tmp_path: Path) -> None:
    async with sasl_broker(tmp_path) as served:
        await plain_login(await served.connect("SASL"))
        await plain_login(await served.connect("SASL"), b"\0alice\0wrong")
        await scram_login(await served.connect("SASL"), "nobody", "wrong")
        await handshake(await served.connect("SASL"), "GSSAPI")
        counts = {
            key: (each.succeeded, each.failed) for key, each in served.broker.probe.logins.items()
        }
        assert counts == {
            ("SASL", "PLAIN"): (1, 1),
            ("SASL", "SCRAM-SHA-256"): (0, 1),
            ("SASL", ""): (0, 1),
        }


async def test_a_refused_login_is_logged_without_its_password(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with sasl_broker(tmp_path) as served:
            await plain_login(await served.connect("SASL"), b"\0mal\nlory\0hunter2")
            await plain_login(await served.connect("SASL"))
    (line,) = (each.getMessage() for each in caplog.records if "login refused" in each.getMessage())
    assert "127.0.0.1" in line
    assert f"login refused, {WRONG_PASSWORD}: PLAIN 'mal\\nlory'" in line
    assert "hunter2" not in caplog.text
    assert "alice-secret" not in caplog.text


async def test_refused_logins_and_changed_users_are_audited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="server.audit"):
        async with sasl_broker(tmp_path) as served:
            await set_password(served, "carol")
            await plain_login(await served.connect("SASL"), b"\0mallory\0hunter2")
    lines = [
        json.loads(each.getMessage()) for each in caplog.records if each.name == "server.audit"
    ]
    changed, refused = lines
    assert (changed["event"], changed["api"]) == ("changed", "AlterUserScramCredentials")
    assert changed["results"] == [{"resource": "User:carol", "result": "NONE"}]
    assert (refused["event"], refused["mechanism"], refused["user"], refused["reason"]) == (
        "refused",
        "PLAIN",
        "mallory",
        WRONG_PASSWORD,
    )


@not_quick
async def test_ten_thousand_wrong_passwords_leave_nothing_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with sasl_broker(tmp_path) as served:
        # Each reason is logged once a minute, and a busy machine takes longer for all of them.
        served.broker.warnings._clock = FixedClock()
        host, port = served.broker.addresses["SASL"]
        await set_password(served, "carol")

        async def try_many(first: int) -> None:
            for number in range(first, first + 250):
                async with await RawClient.connect(host, port) as client:
                    if number % 50:
                        await plain_login(client, b"\0\0wrong%d" % number)
                    else:
                        await plain_login(client, b"\0user%d\0wrong" % number)

        await asyncio.gather(*(try_many(first) for first in range(0, 10_000, 250)))
        lines = [each for each in caplog.records if "login refused" in each.getMessage()]
        assert len(lines) == 2, "one for each reason"
        assert len(caplog.records) < 40
        assert not served.broker.logins._passwords._remembered
        assert served.broker.requests.held_bytes == 0
        assert len(served.broker.warnings._recent) <= 3
        counts = served.broker.probe.logins
        assert {key: each.failed for key, each in counts.items()} == {("SASL", "PLAIN"): 10_000}


async def test_the_broker_stops_while_a_login_is_held_back(tmp_path: Path) -> None:
    async with sasl_broker(tmp_path, connection_failed_authentication_delay_ms="300") as served:
        client = await served.connect("SASL")
        await handshake(client)
        client.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
        await plain_login(await served.connect("SASL"))


async def test_a_challenge_is_not_a_login(tmp_path: Path) -> None:
    async with sasl_broker(tmp_path) as served:
        await set_password(served, "carol")
        client = await served.connect("SASL")
        await handshake(client, "SCRAM-SHA-256")
        response = await send_token(client, ScramClient("carol", "pencil").first())
        assert copied(response.auth_bytes).startswith(b"r=")
        assert connection_of(served).principal == ANONYMOUS
        client.send(METADATA, 9)
        assert await client.is_closed()
