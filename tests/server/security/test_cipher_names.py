"""Cipher suites: OpenSSL's names for IANA's."""

from __future__ import annotations

import ssl

import pytest

from server.security.cipher_names import is_tls13_suite, openssl_name

NAMES = {
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "ECDHE-RSA-AES128-GCM-SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
}


@pytest.mark.parametrize(("iana", "openssl"), NAMES.items())
def test_openssl_knows_the_suite_by_the_translated_name(iana: str, openssl: str) -> None:
    assert openssl_name(iana) == openssl
    assert not is_tls13_suite(iana)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(openssl)


def test_the_suites_of_tls_1_3_are_told_apart() -> None:
    assert is_tls13_suite("TLS_AES_256_GCM_SHA384")
    assert is_tls13_suite("TLS_CHACHA20_POLY1305_SHA256")
