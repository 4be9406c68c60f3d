"""Asks the HTTP endpoint of the broker that runs with a configuration.

It sends no login, so an endpoint that requires one is skipped.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from server.config.config import BrokerConfig

Json = dict[str, Any]

ANSWER_SECONDS_MAX = 3.0


def asked(config: BrokerConfig, path: str) -> Json | None:
    """Returns the JSON at a path; None if no broker of this release answers there."""
    address = config.resolved_http_listener()
    if address is None or address.has_tls or config.http_authenticates:
        return None
    url = f"http://{address.host or '127.0.0.1'}:{address.port}{path}"
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS_MAX) as response:
            found: Json = json.load(response)
            return found
    except (OSError, urllib.error.URLError, ValueError):
        return None
