"""PLAIN: one token with the user and the password."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.security.sasl.exchange import Failure, PasswordQuestion, Success
from server.security.sasl.plain import PlainExchange

FAILED = "Authentication failed: "


def test_a_token_asks_whether_the_password_is_right() -> None:
    exchange = PlainExchange()
    question = exchange.step(b"\0alice\0secret")

    assert isinstance(question, PasswordQuestion)
    assert (question.user, question.password) == ("alice", "secret")
    assert exchange.claimed_user == "alice"
    assert question.then(True) == Success(user="alice")
    assert question.then(False) == Failure(f"{FAILED}Invalid username or password")


def test_the_password_does_not_show_in_texts() -> None:
    assert "secret" not in repr(PlainExchange().step(b"\0alice\0secret"))


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0" * 9, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0secret", f"{FAILED}username not specified"),
        (b"\0alice\0", f"{FAILED}password not specified"),
    ],
)
def test_a_malformed_token_is_refused_with_kafkas_text(token: bytes, text: str) -> None:
    assert PlainExchange().step(token) == Failure(text)


@pytest.mark.parametrize("named", ["alice", ""])
def test_the_authorization_id_may_be_the_user(named: str) -> None:
    question = PlainExchange().step(f"{named}\0alice\0secret".encode())
    assert isinstance(question, PasswordQuestion)
    assert question.then(True) == Success(user="alice")


def test_another_authorization_id_is_refused_only_after_the_password() -> None:
    question = PlainExchange().step(b"root\0alice\0secret")
    assert isinstance(question, PasswordQuestion)
    different = "Client requested an authorization id that is different from username"
    assert question.then(True) == Failure(FAILED + different)
    assert question.then(False) == Failure(f"{FAILED}Invalid username or password")


def test_a_second_token_is_refused() -> None:
    exchange = PlainExchange()
    exchange.step(b"\0alice\0secret")
    assert exchange.step(b"\0alice\0secret") == Failure()


@given(st.binary(max_size=60))
def test_any_bytes_are_a_question_or_a_refusal(token: bytes) -> None:
    step = PlainExchange().step(token)
    assert isinstance(step, Failure | PasswordQuestion)
    if isinstance(step, PasswordQuestion):
        assert step.user
        assert step.password
        assert token.count(b"\0") == 2
