"""The token that a process shows which wants to clean logs of this broker: a file that its owner reads.

`<metadata directory>/remote-cleaning.token`, 64 hexadecimal digits and a newline, mode 0600. Who can
read that can write the segments beside it anyway. It is made once, where cleaning by others is enabled,
and stays; to change it, remove the file while the broker is stopped.
"""

from __future__ import annotations

import hmac
import re
import secrets

from storage.errors import DamagedFile, MissingFile
from storage.files import FileSystem
from storage.paths import SHOWN_BY_CLEANERS, join

_TOKEN = re.compile(rb"[0-9a-f]{64}\n")


def remote_token(fs: FileSystem, directory: str) -> str:
    """The directory's token; made, durably, if there is none.

    Raises:
        DamagedFile: what lies there is none.
        DiskError: it cannot be read or made.
    """
    path = join(directory, SHOWN_BY_CLEANERS)
    try:
        data = fs.read_bytes(path)
    except MissingFile:
        data = f"{secrets.token_hex(32)}\n".encode()
        fs.replace_durably(path, data, secret=True)
    if not _TOKEN.fullmatch(data):
        raise DamagedFile(path, "it does not hold 64 hexadecimal digits and a newline")
    return data.decode().strip()


def shows_token(authorization: str | None, token: str) -> bool:
    """Whether an Authorization header shows the token, in a time that does not tell how much of it."""
    # aiohttp reads bytes that are not UTF-8 as surrogates.
    shown = (authorization or "").encode(errors="surrogateescape")
    return hmac.compare_digest(shown, f"Bearer {token}".encode())
