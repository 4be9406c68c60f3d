"""Cipher suites: OpenSSL's names for IANA's, which Kafka and Java use.

    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256        ECDHE-RSA-AES128-GCM-SHA256
    TLS_RSA_WITH_AES_256_CBC_SHA                 AES256-SHA

Source: RFC 5246, RFC 5289, RFC 7905; OpenSSL, ssl/ssl_local.h.
"""

from __future__ import annotations

import re

SUITE = re.compile(
    r"(?:TLS|SSL)_(?P<exchange>[A-Z_]+?)_WITH_(?P<cipher>[A-Z0-9_]+?)_(?P<digest>SHA\d*)"
)
TLS13_SUITE = re.compile(r"TLS_(?:AES|CHACHA20)_[A-Z0-9_]+")


def is_tls13_suite(name: str) -> bool:
    """Returns whether a suite is one of TLS 1.3, whose names say nothing of keys."""
    return TLS13_SUITE.fullmatch(name) is not None


def openssl_name(name: str) -> str:
    """Returns OpenSSL's name of a suite before TLS 1.3; a name that is no IANA name as it is."""
    found = SUITE.fullmatch(name)
    if found is None:
        return name
    cipher = found["cipher"].replace("_CBC", "").replace("_", "-")
    cipher = re.sub(r"(AES|CAMELLIA|ARIA)-(\d+)", r"\1\2", cipher)
    exchange = "" if found["exchange"] == "RSA" else found["exchange"].replace("_", "-") + "-"
    # The digest of ChaCha20-Poly1305 is part of its definition, and OpenSSL leaves it out.
    digest = "" if cipher.startswith("CHACHA20") else "-" + found["digest"]
    return exchange + cipher + digest
