"""How a schema registry is reached: its addresses, TLS, and a login. From configuration only."""

from __future__ import annotations

import ssl
from base64 import b64encode
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit


class BadRegistryUrl(Exception):
    """A URL cannot be that of a registry. The text is a clause that says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAccess:
    """How to reach a registry."""

    urls: tuple[SplitResult, ...]
    """Of its nodes: if one cannot be reached, the next is asked."""
    user_info: str = field(default="", repr=False)
    """`user:password` for Basic authentication; empty: none."""
    tls: ssl.SSLContext | None = None
    """For https; None: the certificates of the system are trusted."""

    def headers(self) -> dict[str, str]:
        """Returns what each request is sent with."""
        accept = "application/vnd.schemaregistry.v1+json, application/json; q=0.5"
        headers = {"Accept": accept, "User-Agent": "kompakt", "Connection": "close"}
        if self.user_info:
            headers["Authorization"] = "Basic " + b64encode(self.user_info.encode()).decode()
        return headers


def registry_url(text: str) -> SplitResult:
    """Returns the parts of a registry's URL. Raises BadRegistryUrl."""
    try:
        url = urlsplit(text)
        url.port  # noqa: B018 - raises for one that is no number
    except ValueError as error:
        raise BadRegistryUrl(f"{text}: {error}") from error
    if url.username is not None:
        # The text would show a password.
        raise BadRegistryUrl("user and password belong into schema.registry.basic.auth.user.info")
    if url.scheme not in {"http", "https"} or not url.hostname or url.query or url.fragment:
        raise BadRegistryUrl(
            f"{text} is not of the form http://host:port or https://host:port/path"
        )
    return url._replace(path=url.path.rstrip("/"))
