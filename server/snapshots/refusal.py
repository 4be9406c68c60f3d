"""Why a snapshot was not made or dropped."""

from __future__ import annotations


class SnapshotRefused(Exception):
    """Nothing was made or dropped. The message is a sentence for people."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status that fits."""
