"""Why the HTTP API refuses a request about cleaning. The client of the command line imports this too."""

from __future__ import annotations

UNKNOWN_TOPIC = "unknown_topic"
"""The code of a refusal because the topic does not exist."""


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
