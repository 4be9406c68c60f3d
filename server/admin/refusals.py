"""Why the HTTP API refuses a request about cleaning. The client of the command line imports this too."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")

UNKNOWN_TOPIC = "unknown_topic"
"""The code of a refusal because the topic does not exist."""


class Lasting(str):
    """A sentence that says why a broker does not serve, if that does not end by itself: it is fenced."""

    __slots__ = ()


class CompactionRefused(Exception):
    """The request cannot be fulfilled: an HTTP status and one sentence for people."""

    def __init__(self, status: int, message: str, *, code: str | None = None) -> None:
        """
        Args:
            code: tells programs the reason, where they need to know it.
        """
        super().__init__(message)
        self.status = status
        self.code = code


def serving(found: T | str) -> T:
    """Returns what answers a request.

    Args:
        found: a sentence while the broker does not serve.

    Raises:
        CompactionRefused: 503, with that sentence; 409 for a lasting one.
    """
    if isinstance(found, str):
        raise CompactionRefused(409 if isinstance(found, Lasting) else 503, found)
    return found
