"""An issuer of tokens: keys in a file or behind HTTP, and tokens that it signs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey


class TokenIssuer:
    """Signs tokens with its newest key."""

    def __init__(self) -> None:
        self._count = 0
        self._keys: list[tuple[str, RSAKey | ECKey]] = []
        self.fetches = 0
        self.new_key()

    def new_key(self, algorithm: str = "RS256") -> None:
        """Sign with a new key from now on."""
        self._count += 1
        parameters: Any = {"kid": f"key-{self._count}", "use": "sig"}
        if algorithm.startswith("ES"):
            self._keys.append((algorithm, ECKey.generate_key("P-256", parameters)))
        else:
            self._keys.append((algorithm, RSAKey.generate_key(2048, parameters)))

    def forget_old_keys(self) -> None:
        self._keys = self._keys[-1:]

    @property
    def key_set(self) -> bytes:
        """The public keys, as the issuer publishes them."""
        keys = KeySet([key for _, key in self._keys])
        return json.dumps(keys.as_dict(private=False)).encode()

    def token(self, subject: str = "alice", *, lifetime_s: float = 300, **claims: Any) -> str:
        """Returns a signed token; a claim of None is left out."""
        algorithm, key = self._keys[-1]
        now = int(time.time())
        all_claims = {"sub": subject, "iat": now, "exp": now + lifetime_s} | claims
        given = {name: value for name, value in all_claims.items() if value is not None}
        return jwt.encode({"alg": algorithm, "kid": key.kid}, given, key, algorithms=[algorithm])

    def write(self, path: Path) -> str:
        """Write the keys to a file. Returns its URL."""
        path.write_bytes(self.key_set)
        return path.as_uri()

    @contextmanager
    def served(self) -> Iterator[str]:
        """Serve the keys by HTTP. Yields the URL."""
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.fetches += 1
                self.send_response(200)
                self.end_headers()
                self.wfile.write(issuer.key_set)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Log nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/keys"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def client_message(token: str, *, authorization_id: str = "", extensions: str = "") -> bytes:
    """Returns a client's message of OAUTHBEARER."""
    name = f"a={authorization_id}" if authorization_id else ""
    return f"n,{name},\x01auth=Bearer {token}\x01{extensions}\x01".encode()
