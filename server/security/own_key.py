"""Loads a private key with its chain into a TLS context, by a file that is in memory and has no name."""

from __future__ import annotations

import os
import ssl


def load_own_key(context: ssl.SSLContext, pem: bytes) -> None:
    """Load an unencrypted key and its chain. Raises ssl.SSLError.

    OpenSSL takes a key from a file only. It gets the name of a memfd, `/proc/self/fd/N`, so that a
    decrypted key is in this process's memory and never in a file that has a name.
    """
    with os.fdopen(os.memfd_create("key", os.MFD_CLOEXEC), "wb") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
