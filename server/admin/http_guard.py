"""Refuses HTTP requests that a foreign web page makes through a browser.

A page from another site can send requests to any address that the browser reaches; these carry the
page's `Origin`. A page can also make its own name resolve to our address (DNS rebinding); then `Host`
is that name. So a request is refused if its Host is not one of ours, or if its Origin differs from its
Host. An IP address is accepted as Host: after a rebinding, Host would still be the foreign name.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit

LOCAL_NAMES = frozenset({"localhost"})


@lru_cache(maxsize=64)
def refusal(host: str | None, origin: str | None, our_names: frozenset[str]) -> str | None:
    """Returns why a request with these headers is refused, in one sentence, or None. Pure.

    The last results are kept: clients send the same headers again and again.
    """
    name = _name_in(f"//{host or ''}")
    if name is None or not (_is_address(name) or name in LOCAL_NAMES or name in our_names):
        return (
            f"the request is for host {host!r}, which is not a name of this broker:"
            " call it by its address, or by a host of its listeners"
        )
    if origin is not None and _netloc_of(origin) != host:
        return f"requests from a web page of {origin!r} are refused"
    return None


def _netloc_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _name_in(netloc: str) -> str | None:
    try:
        return urlsplit(netloc).hostname
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
