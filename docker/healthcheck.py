"""Check whether the broker of this container serves: exit with 0 if so, else with 1 and the reason.

It requests /health/ready from the broker's HTTP listener: `http.listener` of the command line, else
KAFKA_HTTP_LISTENER, else the mounted server.properties, else the container's default. It has no
certificate of its own, so it only connects to an HTTP listener that requires one. Without an HTTP
listener it connects to the first of `listeners`. It runs every few seconds, so it imports little.
"""

from __future__ import annotations

import http.client
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

CONFIG = Path("/mnt/shared/config/server.properties")
BROKER = Path("/proc/1/cmdline")
DEFAULTS = {"http.listener": "127.0.0.1:9644", "listeners": "PLAINTEXT://:9092"}
"""The same defaults as in the entry point."""
CLIENT_AUTH = ("listener.name.http.ssl.client.auth", "ssl.client.auth")
"""Whether HTTP clients must show a certificate; the first that is set counts."""
TIMEOUT_SECONDS = 2.0
EVERYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not listened on
ADDRESS = re.compile(r"(?:\w+://)?(.*):(\d+)")


def configured(
    name: str, arguments: Sequence[str], environment: Mapping[str, str], file: str
) -> str:
    """Returns the value that the broker uses for a property; the later source wins."""
    value = DEFAULTS.get(name, "")
    given = re.findall(rf"^\s*{re.escape(name)}\s*[=:]\s*(.*?)\s*$", file, re.MULTILINE)
    value = given[-1] if given else value
    value = environment.get("KAFKA_" + name.upper().replace(".", "_"), value)
    for argument in arguments:
        text = argument.removeprefix("--override=")
        if text.startswith(name + "="):
            value = text.removeprefix(name + "=")
    return value


def address_in(text: str) -> tuple[str, int] | None:
    """Returns the address to connect to for a listener `[NAME://]host:port`; None for an empty text.

    Raises:
        ValueError: the text does not have that form.
    """
    first = text.split(",")[0].strip()
    if not first:
        return None
    found = ADDRESS.fullmatch(first)
    if found is None:
        raise ValueError(f"{text} is not host:port")
    host = found[1].strip("[]")
    return EVERYWHERE.get(host, host), int(found[2])


def failure(arguments: Sequence[str], environment: Mapping[str, str], file: str) -> str | None:
    """Returns the reason why the broker does not serve, None if it does."""
    try:
        text = configured("http.listener", arguments, environment, file)
        asked = address_in(text)
        has_tls = text.startswith("https://")
        auth = (configured(name, arguments, environment, file) for name in CLIENT_AUTH)
        needs_certificate = has_tls and next(filter(None, auth), "") == "required"
        if asked is not None and not needs_certificate:
            return _not_ready(*asked, has_tls=has_tls)
        listener = asked or address_in(configured("listeners", arguments, environment, file))
        if listener is not None:
            socket.create_connection(listener, TIMEOUT_SECONDS).close()
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _not_ready(host: str, port: int, *, has_tls: bool) -> str | None:
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    if has_tls:
        import ssl

        # The certificate names the broker's own hosts, and no secret is sent.
        context = ssl._create_unverified_context()  # noqa: S323
        connection = http.client.HTTPSConnection(
            host, port, timeout=TIMEOUT_SECONDS, context=context
        )
    try:
        connection.request("GET", "/health/ready")
        response = connection.getresponse()
        text = response.read().decode(errors="replace").strip()
        return None if response.status == http.client.OK else text
    finally:
        connection.close()


def main() -> int:
    """Check the broker of this container."""
    arguments = BROKER.read_bytes().decode(errors="replace").split("\0") if BROKER.exists() else []
    file = CONFIG.read_text("utf-8", errors="replace") if CONFIG.is_file() else ""
    reason = failure(arguments, os.environ, file)
    if reason is not None:
        sys.stdout.write(reason + "\n")
    return int(reason is not None)


if __name__ == "__main__":
    sys.exit(main())
