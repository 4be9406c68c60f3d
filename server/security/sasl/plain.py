"""PLAIN: the client sends its name and its password in one token.

    token := [authorization id] NUL user NUL password        (UTF-8)

Source: RFC 4616; Apache Kafka, PlainSaslServer.java.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from server.security.sasl.exchange import Failure, Outcome, PasswordQuestion, Step, Success

FAILED = "Authentication failed: "


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainLogin:
    """The parts of a token."""

    authorization_id: str
    user: str
    password: str = field(repr=False)


def parse_login(token: bytes) -> PlainLogin | Failure:
    """Returns the parts of a token, or why it is refused, in Kafka's words."""
    parts = token.decode("utf-8", "replace").split("\0")
    if len(parts) != 3:
        count = min(len(parts), 4)
        return Failure(f"Invalid SASL/PLAIN response: expected 3 tokens, got {count}")
    authorization_id, user, password = parts
    if not user:
        return Failure(f"{FAILED}username not specified")
    if not password:
        return Failure(f"{FAILED}password not specified")
    return PlainLogin(authorization_id=authorization_id, user=user, password=password)


class PlainExchange:
    """A login by PLAIN."""

    __slots__ = ("_is_over", "claimed_user")

    def __init__(self) -> None:
        self._is_over = False
        self.claimed_user = ""

    def step(self, token: bytes) -> Step:
        """Take the only token."""
        if self._is_over:
            return Failure()
        self._is_over = True
        login = parse_login(token)
        if isinstance(login, Failure):
            return login
        self.claimed_user = login.user
        return PasswordQuestion(
            user=login.user,
            password=login.password,
            then=lambda is_right: _outcome(login, is_right=is_right),
        )


def _outcome(login: PlainLogin, *, is_right: bool) -> Outcome:
    if not is_right:
        return Failure(f"{FAILED}Invalid username or password")
    if login.authorization_id not in ("", login.user):
        return Failure(
            f"{FAILED}Client requested an authorization id that is different from username"
        )
    return Success(user=login.user)
