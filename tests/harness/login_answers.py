"""Asks a broker what a client gets for each right and wrong step of a login, byte for byte.

A scene is one connection. Its result is the list of answers: the error's name, its message, the token,
and whether the broker closes the connection. The same scenes ask Apache Kafka and the broker under test:

    python -m tests.harness.login_answers FILE    write the answers of an Apache Kafka

Apache Kafka's answers are in `tests/conformance/logins/wire.txt`.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from protocol.wire.error_codes import ErrorCode
from protocol.wire.schema import Message, copied
from tests.harness.raw_client import RawClient
from tests.harness.scram_client import ScramClient
from tests.harness.secured_listeners import (
    OTHER_PASSWORD,
    OTHER_USER,
    PASSWORD,
    REAUTH_MS,
    USER,
    SecuredListeners,
    secured_kafka,
)
from tests.harness.token_issuer import TokenIssuer, client_message

ENDED = "the connection ends"
RANDOM = re.compile(r"=[^,]{9,}")
"""The nonces, salts and signatures of SCRAM."""
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
CLIENT_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(194)


class Dialog:
    """One connection, and what the client has noted on it."""

    def __init__(self, client: RawClient, listeners: SecuredListeners) -> None:
        self._client = client
        self.issuer = listeners.issuer
        self.noted: list[str] = []

    async def handshake(self, mechanism: str, version: int = 1) -> None:
        """Choose a mechanism."""
        request = SaslHandshakeRequest(mechanism=mechanism)
        answer = await self._call(request, version, SaslHandshakeResponse)
        if answer is not None:
            error = ErrorCode(answer.error_code)
            offered = f" {sorted(answer.mechanisms)}" if error else ""
            self._note(f"handshake {error.name}{offered}")

    async def token(self, token: bytes, version: int = 2) -> bytes:
        """Send a token. Returns the broker's."""
        request = SaslAuthenticateRequest(auth_bytes=token)
        answer = await self._call(request, version, SaslAuthenticateResponse)
        if answer is None:
            return b""
        said = copied(answer.auth_bytes)
        parts = [
            ErrorCode(answer.error_code).name,
            repr(answer.error_message) if answer.error_message is not None else "",
            RANDOM.sub("=...", said.decode("utf-8", "replace")),
            _session(answer.session_lifetime_ms),
        ]
        self._note("token " + " ".join(filter(None, parts)))
        return bytes(said)

    async def plain(self, user: str = USER, password: str = PASSWORD, version: int = 2) -> None:
        """Log in by PLAIN."""
        await self.handshake("PLAIN")
        await self.token(f"\0{user}\0{password}".encode(), version)

    async def scram(self, mechanism: str, user: str = USER, password: str = PASSWORD) -> None:
        """Log in by SCRAM."""
        await self.handshake(mechanism)
        client = ScramClient(user, password, HASHES[mechanism])
        challenge = await self.token(client.first())
        if challenge.startswith(b"r="):
            await self.token(client.final(challenge))

    async def send(self, request: Message, version: int) -> None:
        """Send another request, and note whether it is answered."""
        self._client.send(request, version)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._client.receive_frame()
            self._note(f"{type(request).__name__.removesuffix('Request')} is answered")
            return
        self._note(ENDED)

    async def send_bytes(self, content: bytes) -> None:
        """Send bytes that are no request."""
        self._client.send_bytes(content)
        await self.end()

    async def end(self) -> None:
        """Note whether the broker still serves the connection."""
        if self.noted[-1:] != [ENDED]:
            await self.send(ApiVersionsRequest(), 0)

    async def _call(self, request: Message, version: int, kind: type[Message]) -> Any:
        number = self._client.send(request, version)
        try:
            return await self._client.receive(kind, version, number)
        except (asyncio.IncompleteReadError, ConnectionError):
            self._note(ENDED)
            return None

    def _note(self, text: str) -> None:
        self.noted.append(text)


def _session(lifetime_ms: int) -> str:
    if lifetime_ms > REAUTH_MS:
        return "until the token expires"
    return f"for {lifetime_ms} ms" if lifetime_ms else ""


Scene: TypeAlias = Callable[[Dialog], Awaitable[object]]


async def _tokens(dialog: Dialog, mechanism: str, *tokens: bytes) -> None:
    await dialog.handshake(mechanism)
    for token in tokens:
        await dialog.token(token)


def tokens(mechanism: str, *sent: bytes) -> Scene:
    """Returns a scene that chooses a mechanism and sends these tokens."""
    return lambda dialog: _tokens(dialog, mechanism, *sent)


def scram(mechanism: str, *, user: str = USER, password: str = PASSWORD) -> Scene:
    """Returns a login by SCRAM."""
    return lambda dialog: dialog.scram(mechanism, user, password)


def bearer(make: Callable[[TokenIssuer], bytes], *more: bytes) -> Scene:
    """Returns a login with a token of the issuer."""
    return lambda dialog: _tokens(dialog, "OAUTHBEARER", make(dialog.issuer), *more)


async def _metadata_first(dialog: Dialog) -> None:
    await dialog.send(MetadataRequest(topics=None), 1)


async def _versions_first(dialog: Dialog) -> None:
    await dialog.send(ApiVersionsRequest(), 0)
    await dialog.plain()


async def _metadata_instead_of_a_token(dialog: Dialog) -> None:
    await dialog.handshake("PLAIN")
    await dialog.send(MetadataRequest(topics=None), 1)


async def _token_after_login(dialog: Dialog) -> None:
    await dialog.plain()
    await dialog.token(b"\0alice\0alice-secret")


async def _handshake_after_login(dialog: Dialog) -> None:
    await dialog.plain()
    await dialog.handshake("PLAIN")


async def _handshake_twice(dialog: Dialog) -> None:
    await dialog.handshake("PLAIN")
    await dialog.handshake("PLAIN")


async def _request_after_refusal(dialog: Dialog) -> None:
    await dialog.plain(password="wrong")
    await dialog.send(MetadataRequest(topics=None), 1)


async def _again_as_another(dialog: Dialog) -> None:
    await dialog.plain()
    await dialog.plain(OTHER_USER, OTHER_PASSWORD)


async def _again_by_another_mechanism(dialog: Dialog) -> None:
    await dialog.plain()
    await dialog.scram("SCRAM-SHA-256")


async def _again_with_a_wrong_password(dialog: Dialog) -> None:
    await dialog.plain()
    await dialog.plain(password="wrong")


async def _again_with_wrong_scram(dialog: Dialog) -> None:
    await dialog.scram("SCRAM-SHA-256")
    await dialog.scram("SCRAM-SHA-256", password="wrong")


async def _again(dialog: Dialog) -> None:
    await dialog.plain()
    await dialog.plain()
    await dialog.send(MetadataRequest(topics=None), 1)


async def _again_too_soon(dialog: Dialog) -> None:
    await dialog.plain()
    await dialog.plain()
    await dialog.handshake("PLAIN")


async def _late(dialog: Dialog) -> None:
    await dialog.plain()
    await asyncio.sleep(REAUTH_MS / 1000 + 0.2)
    await dialog.send(MetadataRequest(topics=None), 1)


def scenes() -> dict[tuple[str, str], Scene]:
    """Returns the scenes by listener and name."""
    of_sasl: dict[str, Scene] = {
        "an unknown mechanism": lambda d: d.handshake("GSSAPI"),
        "a mechanism in small letters": lambda d: d.handshake("plain"),
        "no mechanism": lambda d: d.handshake(""),
        "Metadata before the login": _metadata_first,
        "ApiVersions before the login": _versions_first,
        "SaslAuthenticate before the handshake": lambda d: d.token(b"\0alice\0alice-secret"),
        "Metadata instead of a token": _metadata_instead_of_a_token,
        "two handshakes": _handshake_twice,
        "a token after the login": _token_after_login,
        "a handshake after the login": _handshake_after_login,
        "a request after a refused login": _request_after_refusal,
        "no request at all": lambda d: d.send_bytes(b"GET / HTTP/1.1\r\n\r\n"),
        "a TLS client": lambda d: d.send_bytes(CLIENT_HELLO),
    }
    found = {("SASL", name): scene for name, scene in {**of_sasl, **_of_mechanisms()}.items()}
    found |= {("SHORT", name): scene for name, scene in AGAIN.items()}
    found["TLS", "a client without TLS"] = lambda d: d.send(ApiVersionsRequest(), 0)
    found["PLAINTEXT", "a handshake"] = lambda d: d.handshake("PLAIN")
    found["PLAINTEXT", "a token"] = lambda d: d.token(b"\0alice\0alice-secret")
    found["PLAINTEXT", "a TLS client"] = lambda d: d.send_bytes(CLIENT_HELLO)
    return found


AGAIN: dict[str, Scene] = {
    "again": _again,
    "again as another user": _again_as_another,
    "again by another mechanism": _again_by_another_mechanism,
    "again with a wrong password by PLAIN": _again_with_a_wrong_password,
    "again with a wrong password by SCRAM": _again_with_wrong_scram,
    "again too soon": _again_too_soon,
    "a request after the session": _late,
    "SaslAuthenticate v0": lambda d: d.plain(version=0),
    "SaslAuthenticate v1": lambda d: d.plain(version=1),
}


def _of_mechanisms() -> dict[str, Scene]:
    return {**_of_plain(), **_of_scram(), **_of_bearer()}


def _of_plain() -> dict[str, Scene]:
    messages = {
        "the right password": b"\0alice\0alice-secret",
        "a wrong password": b"\0alice\0wrong",
        "an unknown user": b"\0mallory\0alice-secret",
        "no password": b"\0alice\0",
        "no user": b"\0\0alice-secret",
        "no token": b"",
        "one part": b"alice",
        "two parts": b"alice\0alice-secret",
        "four parts": b"\0alice\0alice-secret\0",
        "six parts": b"\0alice\0alice-secret\0\0\0",
        "the user as authorization id": b"alice\0alice\0alice-secret",
        "another authorization id": b"bob\0alice\0alice-secret",
        "another authorization id and a wrong password": b"bob\0alice\0wrong",
        "bytes that are no UTF-8": b"\0alice\0\xff\xfe",
    }
    return {f"PLAIN: {name}": tokens("PLAIN", sent) for name, sent in messages.items()}


def _of_scram() -> dict[str, Scene]:
    found: dict[str, Scene] = {}
    for mechanism in HASHES:
        found[f"{mechanism}: the right password"] = scram(mechanism)
        found[f"{mechanism}: a wrong password"] = scram(mechanism, password="wrong")
        found[f"{mechanism}: an unknown user"] = scram(mechanism, user="mallory")
    nonce = b"r=fyko+d2lbbFgONRv9qkxdawL"
    first = {
        "no token": b"",
        "a token that is no SCRAM": b"hello",
        "a channel binding": b"p=tls-unique,,n=alice," + nonce,
        "a client that could bind": b"y,,n=alice," + nonce,
        "another authorization id": b"n,a=bob,n=alice," + nonce,
        "a delegation token": b"n,,n=alice," + nonce + b",tokenauth=true",
        "no nonce": b"n,,n=alice",
    }
    name = "SCRAM-SHA-256"
    found |= {f"{name}: {what}": tokens(name, sent) for what, sent in first.items()}
    found[f"{name}: a second token that is no SCRAM"] = tokens(name, b"n,,n=alice," + nonce, b"no")
    return found


def _of_bearer() -> dict[str, Scene]:
    def message(**claims: object) -> Callable[[TokenIssuer], bytes]:
        return lambda issuer: client_message(issuer.token(USER, **claims))  # type: ignore[arg-type]

    other = TokenIssuer()
    sent: dict[str, Scene] = {
        "a valid token": bearer(message()),
        "an expired token": bearer(message(lifetime_s=-3600), b"\x01"),
        "a token of another issuer": bearer(lambda _: client_message(other.token(USER)), b"\x01"),
        "a token that is no JWT": bearer(lambda _: client_message("abc"), b"\x01"),
        "a token without exp": bearer(message(exp=None), b"\x01"),
        "a message that is no OAUTHBEARER": tokens("OAUTHBEARER", b"hello"),
        "another token after an error": bearer(
            lambda _: client_message("abc"), client_message("abc")
        ),
        "another authorization id": bearer(
            lambda issuer: client_message(issuer.token(USER), authorization_id="bob")
        ),
    }
    return {f"OAUTHBEARER: {name}": scene for name, scene in sent.items()}


async def all_answers(listeners: SecuredListeners) -> dict[tuple[str, str], str]:
    """Returns the answers that a client gets in each scene, by listener and name."""
    played = scenes()
    texts = await asyncio.gather(
        *(_answers_in(listeners, listener, scene) for (listener, _), scene in played.items())
    )
    answers = dict(zip(played, texts, strict=True))
    for listener, name, shown in _certificates(listeners):
        answers[listener, name] = await _handshake(listeners, listener, shown)
    return answers


async def _answers_in(listeners: SecuredListeners, listener: str, scene: Scene) -> str:
    tls = listeners.certificates.trust() if listener == "SHORT" else None
    port = listeners.ports[listener]
    async with await RawClient.connect("127.0.0.1", port, tls=tls) as client:
        dialog = Dialog(client, listeners)
        await scene(dialog)
        await dialog.end()
    return "; ".join(dialog.noted)


# TLS.


def _certificates(listeners: SecuredListeners) -> list[tuple[str, str, Path | None]]:
    """Returns what clients show to the listener that wants a certificate."""
    issued = listeners.certificates
    return [
        ("MUTUAL", "a certificate", issued.client("shown")),
        ("MUTUAL", "an expired certificate", issued.client("expired-client", expired=True)),
        ("MUTUAL", "a certificate of another authority", listeners.stranger.client("mallory")),
        ("MUTUAL", "no certificate", None),
    ]


async def _handshake(listeners: SecuredListeners, listener: str, shown: Path | None) -> str:
    """Returns the alert of the broker; with TLS 1.3 it comes after the client's handshake."""
    context = listeners.certificates.trust(shown)
    try:
        client = await RawClient.connect("127.0.0.1", listeners.ports[listener], tls=context)
        async with client:
            client.send(ApiVersionsRequest(), 0)
            await client.receive_frame()
    except ssl.SSLError as error:
        return f"alert {error.reason}"
    except (asyncio.IncompleteReadError, ConnectionError):
        return ENDED
    return "ApiVersions is answered"


# As text.


def written(answers: dict[tuple[str, str], str]) -> str:
    """Returns the answers as text for a file."""
    return "".join(f"{listener} | {name} | {text}\n" for (listener, name), text in answers.items())


def read(text: str) -> dict[tuple[str, str], str]:
    """Parse the answers from their text."""
    rows = (line.split(" | ", 2) for line in text.splitlines())
    return {(listener, name): told for listener, name, told in rows}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch, secured_kafka(Path(scratch) / "kafka") as asked:
        Path(sys.argv[1]).write_text(written(asyncio.run(all_answers(asked))), "utf-8")
