"""The login of one connection: which requests may come next, and until when it holds.

    HANDSHAKE --SaslHandshake--> TOKENS --last token--> COMPLETE --SaslHandshake (KIP-368)--> TOKENS
                                    |                       |
                                    +--refused--> FAILED    +--time over: next request--> closed

Pure: it gets times, and knows no socket and no clock.

Source: KIP-43, KIP-152, KIP-255, KIP-368; Apache Kafka, SaslServerAuthenticator.java, KafkaChannel.java.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

from protocol.wire.api_keys import APIS, ApiKey
from protocol.wire.errors import ProtocolError
from server.config.listeners.sasl_listeners import SaslListener
from server.security.principal import Principal, user
from server.security.sasl.exchange import Exchange, Failure, Success

REAUTH_INTERVAL_SECONDS = 1.0
"""After a client has authenticated again, it may do so once more after this time, as in Kafka."""

_KEY = struct.Struct(">h")


class UnexpectedRequest(ProtocolError):
    """A client sent a request that is not allowed in the state of its login. Close the connection."""


class SessionExpired(ProtocolError):
    """A client did not authenticate again in time. Close the connection."""


class LoginTimeout(ProtocolError):
    """A client did not complete its login in time. Close the connection."""


class State(enum.Enum):
    """The state of a login."""

    HANDSHAKE = enum.auto()
    """The client has to choose a mechanism; it may ask for the versions first."""
    TOKENS = enum.auto()
    """The client has to send its next token."""
    COMPLETE = enum.auto()
    FAILED = enum.auto()
    """The connection is about to be closed."""


ALLOWED = {
    State.HANDSHAKE: frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}),
    State.TOKENS: frozenset({ApiKey.SASL_AUTHENTICATE}),
    State.FAILED: frozenset[ApiKey](),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A completed login."""

    principal: Principal
    mechanism: str
    session_ms: int
    """For how long it holds, in ms; 0: for ever."""
    is_again: bool
    """Whether the connection was authenticated before."""


class SaslSession:
    """The login of one connection."""

    __slots__ = (
        "_began_again_s",
        "_began_s",
        "_expires_s",
        "_login",
        "exchange",
        "listener",
        "mechanism",
        "reads_raw_tokens",
        "state",
    )  # fmt: skip

    def __init__(self, listener: SaslListener, *, now_s: float) -> None:
        # Constant after construction
        self.listener = listener
        # State
        self.state = State.HANDSHAKE
        self.mechanism = ""
        """The mechanism of the login; empty until the client has chosen one."""
        self.exchange: Exchange | None = None
        """The running exchange; there is one in TOKENS only."""
        self.reads_raw_tokens = False
        """Whether tokens arrive without a request around them (SaslHandshake v0)."""
        self._began_s = now_s
        self._began_again_s = float("-inf")
        self._login: Login | None = None
        self._expires_s: float | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the client is authenticated, and not authenticating again."""
        return self.state is State.COMPLETE

    @property
    def is_again(self) -> bool:
        """Whether the client was authenticated before."""
        return self._login is not None

    def is_unfinished_since(self, time_s: float) -> bool:
        """Returns whether the login began before `time_s` and is not complete."""
        return not self.is_complete and self._began_s < time_s

    def check_request(self, frame: bytes | bytearray, now_s: float) -> None:
        """Check that a request is allowed, by its API alone: nothing else of it was read.

        Raises:
            UnexpectedRequest, SessionExpired: it is not.
        """
        key = _KEY.unpack_from(frame)[0] if len(frame) >= _KEY.size else None
        if self.state is State.COMPLETE:
            is_late = self._expires_s is not None and now_s > self._expires_s
            if is_late and key != ApiKey.SASL_HANDSHAKE:
                raise SessionExpired(
                    "the session expired and the client did not authenticate again"
                )
        elif key not in ALLOWED[self.state]:
            during = "authentication" if self.state is State.TOKENS else "handshake"
            raise UnexpectedRequest(
                f"Unexpected Kafka request of type {_name(key)} during SASL {during}."
            )

    def may_begin(self, now_s: float) -> bool:
        """Returns whether a SaslHandshake begins a login, or the next one of an authenticated client."""
        if self.state is State.COMPLETE:
            is_early = now_s - self._began_again_s < REAUTH_INTERVAL_SECONDS
            return self._expires_s is not None and not is_early
        return self.state is State.HANDSHAKE

    def begin(
        self, mechanism: str, exchange: Exchange, *, now_s: float, is_raw: bool = False
    ) -> None:
        """Begin an exchange by a mechanism that is enabled."""
        assert self.may_begin(now_s)
        if self.is_again:
            self._began_again_s = now_s
        self.state = State.TOKENS
        self.mechanism = mechanism
        self.exchange = exchange
        self.reads_raw_tokens = is_raw
        self._began_s = now_s

    def fail(self) -> None:
        """Allow no further request."""
        self.state = State.FAILED
        self.exchange = None
        self.reads_raw_tokens = False

    def complete(self, success: Success, *, now_s: float, now_ms: int) -> Login | Failure:
        """Complete the login, and allow all requests until the session ends.

        Returns:
            The login; a failure if the principal or the mechanism is not that of the last login.
        """
        principal = user(success.user)
        before = self._login
        if before is not None and (before.mechanism, before.principal) != (
            self.mechanism,
            principal,
        ):
            return Failure(self._change_text(before, principal))
        session_ms = self._session_ms(success, now_ms)
        self._expires_s = None if session_ms is None else now_s + session_ms / 1000
        self.state = State.COMPLETE
        self.exchange = None
        self.reads_raw_tokens = False
        login = Login(
            principal=principal,
            mechanism=self.mechanism,
            session_ms=session_ms or 0,
            is_again=self.is_again,
        )
        self._login = login
        return login

    def failure_text(self, failure: Failure) -> str:
        """Returns Kafka's text for a refused login."""
        if failure.message is not None:
            return failure.message
        during = "re-authentication" if self.is_again else "authentication"
        return (
            f"Authentication failed during {during} due to invalid credentials with SASL mechanism"
            f" {self.mechanism}"
        )

    def _change_text(self, before: Login, principal: Principal) -> str:
        if before.mechanism != self.mechanism:
            return (
                f"SASL mechanism '{self.mechanism}' requested by client is not supported for"
                f" re-authentication of mechanism '{before.mechanism}'"
            )
        was = before.principal
        return (
            f"Cannot change principals during re-authentication from {was.type}.{was.name}:"
            f" {principal.type}.{principal.name}"
        )

    def _session_ms(self, success: Success, now_ms: int) -> int | None:
        """Returns for how long the login holds; None: for ever."""
        bounds = [self.listener.session_ms.get(self.mechanism)]
        if success.expires_ms is not None:
            bounds.append(max(0, success.expires_ms - now_ms))
        return min((each for each in bounds if each is not None), default=None)


def _name(key: int | None) -> str:
    """Returns Kafka's name of an API: SASL_HANDSHAKE."""
    if key is None:
        return "unknown"
    return APIS[key].key.name if key in APIS else str(key)
