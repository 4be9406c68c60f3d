"""OAUTHBEARER: the client's message, and the answers to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.security.sasl.exchange import (
    Challenge,
    Failure,
    Success,
    TokenFacts,
    TokenQuestion,
)
from server.security.sasl.oauthbearer import OAuthExchange, parse_response
from tests.harness.token_issuer import client_message

FACTS = TokenFacts(subject="alice", expires_ms=5000)
ERROR = '{"status":"invalid_token"}'


def question(message: bytes = client_message("abc.def.ghi")) -> tuple[OAuthExchange, TokenQuestion]:
    exchange = OAuthExchange()
    step = exchange.step(message)
    assert isinstance(step, TokenQuestion)
    return exchange, step


@pytest.mark.parametrize(
    "message",
    [
        client_message("abc.def-_~+/="),
        client_message("abc.def-_~+/=", authorization_id="alice"),
        client_message("abc.def-_~+/=", extensions="traceId=1 2\x01other=x\x01"),
        b"n,,\x01auth=bEARER   abc.def-_~+/=\x01\x01",
        b"n,,\x01first=x\x01auth=Bearer abc.def-_~+/=\x01\x01",
    ],
)
def test_a_valid_token_logs_its_subject_in(message: bytes) -> None:
    exchange, asked = question(message)
    assert asked.token == "abc.def-_~+/="
    assert "abc.def" not in repr(asked)
    assert asked.then(FACTS) == Success(user="alice", expires_ms=5000)
    assert exchange.claimed_user == "alice"
    assert exchange.step(message) == Failure()


def test_an_invalid_token_gets_an_error_that_the_client_confirms() -> None:
    exchange, asked = question()
    assert asked.then(None) == Challenge(ERROR.encode())
    assert exchange.step(b"\x01") == Failure(ERROR)
    assert exchange.step(client_message("abc.def.ghi")) == Failure()


def test_after_an_error_no_other_token_is_taken() -> None:
    exchange, asked = question()
    asked.then(None)
    assert exchange.step(client_message("abc.def.ghi")) == Failure()


def test_another_authorization_id_is_refused() -> None:
    _, asked = question(client_message("abc", authorization_id="root"))
    assert asked.then(FACTS) == Failure(
        "Authentication failed: Client requested an authorization id (root) that is different from"
        " the token's principal name (alice)"
    )


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer a=b\x01\x01",
        b"n,,\x01other=Bearer abc\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,auth=Bearer abc\x01\x01",
        client_message("abc") + b"\x01",
        client_message("abc", authorization_id="a,b"),
        client_message("ab\xffc"),
    ],
)
def test_a_malformed_message_is_refused(message: bytes) -> None:
    assert parse_response(message) is None
    assert OAuthExchange().step(message) == Failure()


@given(st.lists(st.binary(max_size=40), max_size=3))
def test_no_bytes_succeed_without_a_question(messages: list[bytes]) -> None:
    exchange = OAuthExchange()
    assert not any(isinstance(exchange.step(message), Success) for message in messages)
