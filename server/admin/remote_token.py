"""The token that a process must send to clean logs of this broker; a file holds it.

`<metadata directory>/remote-cleaning.token`, 64 hexadecimal digits and a newline, mode 0600. A process
that can read it can write the segments beside it anyway. It is created once, when remote cleaning is
enabled, and stays; to change it, remove the file while the broker is stopped.
"""

from __future__ import annotations

import hmac
import re
import secrets

from storage.files.errors import DamagedFile, MissingFile
from storage.files.files import FileSystem
from storage.files.paths import SHOWN_BY_CLEANERS, join

_TOKEN = re.compile(rb"[0-9a-f]{64}\n")


def remote_token(fs: FileSystem, directory: str) -> str:
    """Returns the directory's token; creates it, durably, if there is none.

    Raises:
        DamagedFile: the file does not hold a token.
        DiskError: the file cannot be read or written.
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
    """Returns whether an Authorization header carries the token; compares in constant time."""
    # aiohttp decodes bytes that are not UTF-8 to surrogates.
    shown = (authorization or "").encode(errors="surrogateescape")
    return hmac.compare_digest(shown, f"Bearer {token}".encode())
