"""The steps of a mechanism: a token from the client -> a challenge, a question, success or failure.

An exchange is pure. What it cannot know, such as whether a password is right, it asks as a question; the
caller finds the answer, in another thread perhaps, and passes it to the question's `then`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Challenge:
    """The client has to send another token."""

    token: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """The client is who it claims to be."""

    user: str
    token: bytes = b""
    """The last token for the client."""
    expires_ms: int | None = None
    """When the client's credential expires, in ms since 1970; None: it does not."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The login is refused."""

    message: str | None = None
    """Kafka's text for the client. None: the general one, which says nothing about the user."""


Outcome = Challenge | Success | Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordQuestion:
    """Whether `password` is the password of `user`."""

    user: str
    password: str = field(repr=False)
    then: Callable[[bool], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFacts:
    """What a valid token says."""

    subject: str
    expires_ms: int
    """When it expires, in ms since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenQuestion:
    """What a token says; None if it is not valid."""

    token: str = field(repr=False)
    then: Callable[[TokenFacts | None], Outcome]


Step = Challenge | Success | Failure | PasswordQuestion | TokenQuestion


class Exchange(Protocol):
    """One login by one mechanism. After a success or a failure it takes no further token."""

    @property
    def claimed_user(self) -> str:
        """The user that the client claims to be, as far as it is known; for logs."""

    def step(self, token: bytes) -> Step:
        """Take the client's next token."""
