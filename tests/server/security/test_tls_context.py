"""Contexts made of properties: client authentication by listener, versions, ciphers, inline stores."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest

from server.config.config import BrokerConfig
from server.security.tls_context import client_auth_of, make_context
from storage.formats.config_property import ConfigError
from tests.harness.certificates import Certificates


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


def context(texts: dict[str, str]) -> ssl.SSLContext:
    config = BrokerConfig.from_texts({"listeners": "SSL://127.0.0.1:0"} | texts)
    return make_context(config, "SSL", has_sasl=False).context


def test_on_a_sasl_listener_only_its_own_client_authentication_counts() -> None:
    of_all = {"ssl.client.auth": "required"}
    own = of_all | {"listener.name.ssl.ssl.client.auth": "requested"}

    for texts, has_sasl, expected in (
        (of_all, False, "required"),
        (of_all, True, "none"),
        (own, False, "requested"),
        (own, True, "requested"),
    ):
        config = BrokerConfig.from_texts(texts)
        assert client_auth_of(config, "SSL", has_sasl=has_sasl) == expected


def test_the_versions_and_ciphers_are_those_that_are_named(certificates: Certificates) -> None:
    store = {"ssl.keystore.location": str(certificates.broker())}
    v12, v13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    old, new = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"

    for texts, versions in (
        ({}, (v12, v13)),
        ({"ssl.enabled.protocols": "TLSv1.3"}, (v13, v13)),
        ({"ssl.cipher.suites": old}, (v12, v12)),
        ({"ssl.cipher.suites": new}, (v13, v13)),
        ({"ssl.cipher.suites": f"{new},{old}"}, (v12, v13)),
    ):
        made = context(store | texts)
        assert (made.minimum_version, made.maximum_version) == versions, texts
    only = context(store | {"ssl.cipher.suites": old}).get_ciphers()
    assert "ECDHE-ECDSA-AES128-GCM-SHA256" in {each["name"] for each in only}
    assert "ECDHE-RSA-AES128-GCM-SHA256" not in {each["name"] for each in only}

    with pytest.raises(ConfigError, match=r"ssl\.enabled\.protocols: none of these versions"):
        context(store | {"ssl.enabled.protocols": "TLSv1.3", "ssl.cipher.suites": old})


def test_an_inline_store_may_be_one_line(certificates: Certificates) -> None:
    pem = certificates.broker().read_text()
    start = pem.index("-----BEGIN CERT")
    inline = {
        "ssl.keystore.key": pem[:start].replace("\n", "\\n"),
        "ssl.keystore.certificate.chain": pem[start:],
        "ssl.client.auth": "required",
        "ssl.truststore.certificates": certificates.authority_file.read_text(),
    }

    assert context(inline).verify_mode is ssl.CERT_REQUIRED


def test_a_key_leaves_no_descriptor_open(certificates: Certificates) -> None:
    store = {"ssl.keystore.location": str(certificates.broker())}
    context(store)
    before = os.listdir("/proc/self/fd")  # noqa: PTH208

    context(store)

    assert len(os.listdir("/proc/self/fd")) == len(before)  # noqa: PTH208


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"ssl.keystore.key": "k"}, "ssl.keystore.certificate.chain: listener SSL has TLS"),
        ({"ssl.keystore.certificate.chain": "c"}, "ssl.keystore.key: listener SSL has TLS"),
        (
            {"listener.name.ssl.ssl.keystore.location": "/none"},
            "listener.name.ssl.ssl.keystore.location: cannot read /none",
        ),
    ],
)
def test_an_error_names_the_property_as_it_was_written(texts: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        context(texts)

    assert message in str(refused.value)


def test_a_trust_store_that_is_set_twice_is_refused(certificates: Certificates) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location: set either this file or"):
        context(
            {
                "ssl.keystore.location": str(certificates.broker()),
                "ssl.client.auth": "requested",
                "ssl.truststore.location": str(certificates.authority_file),
                "ssl.truststore.certificates": "x",
            }
        )
