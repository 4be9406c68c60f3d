"""How a command logs in to the broker's HTTP endpoint: as the user, or with the token, of its access.

    a user's password    Authorization: Basic BASE64(user:password)
    a token              Authorization: Bearer TOKEN

The user is the one of the command's other logins: `cli/base/access.py`.
"""

from __future__ import annotations

import base64
import ipaddress
from urllib.parse import urlsplit

from cli.base.command_end import EXIT_USAGE, CommandFailed
from server.client.access import Login
from server.client.errors import Misconfigured
from server.client.token_file import read_token


def authorization(login: Login | None, url: str) -> dict[str, str]:
    """Returns the headers that log in.

    Raises:
        CommandFailed: the password or the token would leave this machine without encryption, or the
            token cannot be read.
    """
    if login is None:
        return {}
    if urlsplit(url).scheme != "https" and not _is_this_machine(url):
        raise CommandFailed(
            EXIT_USAGE, f"{url} would carry the password without encryption: use https:// (--url)"
        )
    if login.token_file is not None:
        try:
            return {"Authorization": f"Bearer {read_token(login.token_file)}"}
        except Misconfigured as error:
            raise CommandFailed(EXIT_USAGE, str(error)) from error
    shown = base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
    return {"Authorization": f"Basic {shown}"}


def _is_this_machine(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
