"""SCRAM: the examples of the RFCs, and no success without the right proof."""

from __future__ import annotations

import base64
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.security.sasl.exchange import Challenge, Failure, Success
from server.security.sasl.scram import OTHER_USER, ScramExchange, parse_client_first
from server.security.scram_credentials import (
    ScramMechanism,
    ScramVerifier,
    salted_password,
    verifier_of,
)
from tests.harness.scram_client import ScramClient

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
MECHANISMS = list(ScramMechanism)


def verifier(
    mechanism: ScramMechanism, password: str, salt: bytes = SALT, iterations: int = 4096
) -> ScramVerifier:
    salted = salted_password(mechanism, password, salt, iterations)
    return verifier_of(mechanism, salted, salt=salt, iterations=iterations)


VERIFIERS = {each: verifier(each, "pencil") for each in MECHANISMS}


def exchange_of(
    mechanism: ScramMechanism = ScramMechanism.SHA_256, nonce: str = SERVER_NONCE
) -> ScramExchange:
    return ScramExchange(mechanism, lambda which, user: VERIFIERS[which], nonce=nonce)


def test_the_example_of_rfc_7677() -> None:
    exchange = exchange_of()
    exchange._nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"

    challenge = exchange.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert challenge == Challenge(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = exchange.step(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert final == Success(user="user", token=b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_right_password_succeeds_and_the_broker_proves_itself(
    mechanism: ScramMechanism,
) -> None:
    exchange = exchange_of(mechanism)
    client = ScramClient("user", "pencil", mechanism.hash_name)
    challenge = exchange.step(client.first())
    assert isinstance(challenge, Challenge)
    success = exchange.step(client.final(challenge.token))
    assert isinstance(success, Success)
    assert success.user == exchange.claimed_user == "user"
    assert client.is_signed(success.token)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_gets_the_text_that_says_nothing(mechanism: ScramMechanism) -> None:
    exchange = exchange_of(mechanism)
    client = ScramClient("user", "pencils", mechanism.hash_name)
    challenge = exchange.step(client.first())
    assert isinstance(challenge, Challenge)
    assert exchange.step(client.final(challenge.token)) == Failure()
    assert exchange.step(client.final(challenge.token)) == Failure()


@pytest.mark.parametrize("name", ["a,b", "a=b", "=2C", "=3D", "jürgen", "a b", "=3D2C"])
def test_names_are_unescaped(name: str) -> None:
    exchange = exchange_of()
    client = ScramClient(name, "pencil")
    challenge = exchange.step(client.first())
    assert isinstance(challenge, Challenge)
    assert exchange.step(client.final(challenge.token)) == Success(
        user=name, token=exchange_token(name)
    )


def exchange_token(name: str) -> bytes:
    exchange, client = exchange_of(), ScramClient(name, "pencil")
    challenge = exchange.step(client.first())
    assert isinstance(challenge, Challenge)
    success = exchange.step(client.final(challenge.token))
    assert isinstance(success, Success)
    return success.token


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,n=user",
        b"n,,n=,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=us,er,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user,r=a,b",
        b"n,,m=x,n=user,r=abc",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=us\0er,r=abc",
        b"n,,n=\xff,r=abc",
        b"n,,n=user,r=abc\n",
        b"n,,n=token,r=abc,tokenauth=true",
    ],
)
def test_a_malformed_first_message_is_refused(first: bytes) -> None:
    assert parse_client_first(first) is None
    exchange = exchange_of()
    assert exchange.step(first) == Failure()
    assert exchange.step(b"n,,n=user,r=abc") == Failure(), "a failed exchange takes no other token"


def test_another_authorization_id_is_refused() -> None:
    assert exchange_of().step(b"n,a=root,n=user,r=abc") == Failure(OTHER_USER)


@pytest.mark.parametrize("extensions", ["", ",a=b", ",x=y,tokenauth=false"])
@pytest.mark.parametrize("header", ["n,,", "n,a=user,"])
def test_extensions_and_headers_are_part_of_what_both_sign(header: str, extensions: str) -> None:
    exchange = exchange_of()
    client = ScramClient("user", "pencil", header=header, extensions=extensions)
    challenge = exchange.step(client.first())
    assert isinstance(challenge, Challenge)
    success = exchange.step(client.final(challenge.token))
    assert isinstance(success, Success)
    assert client.is_signed(success.token)


@pytest.mark.parametrize(("twice", "is_accepted"), [("", True), ("own", True), ("other", False)])
def test_old_librdkafka_repeats_its_own_nonce(twice: str, is_accepted: bool) -> None:
    exchange = exchange_of()
    client = ScramClient("user", "pencil")
    challenge = exchange.step(client.first())
    assert isinstance(challenge, Challenge)
    in_front = {"": "", "own": client.nonce, "other": "x"}[twice]
    signed = client.final(challenge.token, in_front=in_front)
    assert isinstance(exchange.step(signed), Success) is is_accepted


def final_message(exchange: ScramExchange) -> bytes:
    client = ScramClient("user", "pencil")
    challenge = exchange.step(client.first())
    assert isinstance(challenge, Challenge)
    return client.final(challenge.token)


@given(st.data())
def test_no_changed_final_message_succeeds(data: st.DataObject) -> None:
    exchange = exchange_of()
    final = bytearray(final_message(exchange))
    position = data.draw(st.integers(0, len(final) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != final[position]))
    final[position] = byte
    assert exchange.step(bytes(final)) == Failure()


@given(st.data())
def test_no_shortened_or_extended_final_message_succeeds(data: st.DataObject) -> None:
    exchange = exchange_of()
    final = final_message(exchange)
    cut = data.draw(st.integers(0, len(final) - 1))
    more = data.draw(st.binary(max_size=5))
    if final[:cut] + more != final:
        assert exchange.step(final[:cut] + more) == Failure()


@given(st.lists(st.binary(max_size=80), max_size=4))
def test_no_other_bytes_succeed(tokens: list[bytes]) -> None:
    exchange = exchange_of()
    for token in tokens:
        assert not isinstance(exchange.step(token), Success)


def test_the_final_message_of_another_login_fails() -> None:
    earlier = final_message(exchange_of())
    exchange = exchange_of(nonce=base64.b64encode(os.urandom(18)).decode())
    final_message(exchange)
    assert exchange.step(earlier) == Failure()


def test_a_proof_without_a_first_message_fails() -> None:
    assert exchange_of().step(final_message(exchange_of())) == Failure()


def test_a_client_that_denies_its_header_fails() -> None:
    """RFC 5802: c= holds the header of the first message. A man in the middle could have changed it."""
    exchange = exchange_of()
    client = ScramClient("user", "pencil")
    challenge = exchange.step(client.first())
    assert isinstance(challenge, Challenge)
    client.header = "y,,"
    assert exchange.step(client.final(challenge.token)) == Failure()
