"""SCRAM verifiers: derivation, text form, no password in sight."""

from __future__ import annotations

import base64

import pytest

from server.security.scram_credentials import (
    ScramMechanism,
    ScramVerifier,
    is_password_of,
    salted_password,
    verifier_of,
)


def verifier(mechanism: ScramMechanism, password: str = "pencil") -> ScramVerifier:
    salted = salted_password(mechanism, password, b"salt", 4096)
    return verifier_of(mechanism, salted, salt=b"salt", iterations=4096)


def test_pbkdf2_is_that_of_rfc_7914() -> None:
    """RFC 7914, section 11."""
    derived = salted_password(ScramMechanism.SHA_256, "passwd", b"salt", 1)
    assert derived.hex().startswith(
        "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc"
    )


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_only_the_password_is_the_password(mechanism: ScramMechanism) -> None:
    made = verifier(mechanism)
    assert is_password_of(mechanism, "pencil", made)
    assert not is_password_of(mechanism, "pencils", made)
    assert not is_password_of(mechanism, "", made)


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_verifier_survives_its_text(mechanism: ScramMechanism) -> None:
    made = verifier(mechanism)
    assert ScramVerifier.from_json(made.to_json()) == made


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"iterations":1,"salt":"*","stored_key":"","server_key":""}']
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        ScramVerifier.from_json(text)


def test_no_key_shows_in_texts() -> None:
    made = verifier(ScramMechanism.SHA_256)
    for secret in (made.salt, made.stored_key, made.server_key):
        assert repr(secret) not in repr(made)
        assert base64.b64encode(secret).decode() not in repr(made)


def test_mechanisms_have_their_names() -> None:
    assert [ScramMechanism.of(each.sasl_name) for each in ScramMechanism] == list(ScramMechanism)
    with pytest.raises(ValueError):
        ScramMechanism.of("PLAIN")
