"""Reads the token of OAUTHBEARER from the file that `sasl.oauthbearer.token.endpoint.url` names.

    sasl.mechanism=OAUTHBEARER
    sasl.oauthbearer.token.endpoint.url=file:///etc/kompakt/token

Source: KIP-768; Apache Kafka, FileJwtRetriever.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from server.client.errors import Misconfigured

URL = "sasl.oauthbearer.token.endpoint.url"
TOKEN_BYTES_MAX = 1 << 20


def token_path(properties: Mapping[str, str]) -> Path:
    """Returns the path of the file with the token. Raises Misconfigured if no file is named."""
    text = properties.get(URL, "")
    url = urlsplit(text)
    if url.scheme.lower() != "file" or url.netloc not in ("", "localhost") or not url.path:
        raise Misconfigured(
            f"{URL}={text or '(not set)'}: kompakt reads the token of OAUTHBEARER from a file: write"
            " file:///PATH",
        )
    return Path(unquote(url.path))


def read_token(path: Path) -> str:
    """Returns the token in a file, without space around it. Raises Misconfigured."""
    try:
        with path.open("rb") as file:
            content = file.read(TOKEN_BYTES_MAX)
    except OSError as error:
        raise Misconfigured(f"{URL}: {path}: {error.strerror}") from error
    token = content.decode("ascii", errors="replace").strip()
    if not token or not token.isascii() or not token.isprintable():
        # The content may be a secret, so the message leaves it out.
        raise Misconfigured(f"{URL}: {path} has no token")
    return token
