"""Gives kafka-python the token of a file. It takes long to import, so the file has a reader apart."""

from __future__ import annotations

from pathlib import Path

from kafka.net.sasl.oauth import AbstractTokenProvider

from server.client.token_file import read_token


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """Returns the token in a file. Each login reads the file again, because tokens expire."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def token(self) -> str:
        """Returns the token. Raises Misconfigured if the file has none."""
        return read_token(self._path)
