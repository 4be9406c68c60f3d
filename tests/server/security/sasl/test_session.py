"""The login of a connection: each request in each state, sessions that end, and logins repeated."""

from __future__ import annotations

import struct

import pytest

from protocol.wire.api_keys import APIS, ApiKey
from server.config.listeners.sasl_listeners import SaslListener
from server.security.principal import user
from server.security.sasl.exchange import Failure, Success
from server.security.sasl.plain import PlainExchange
from server.security.sasl.session import (
    Login,
    SaslSession,
    SessionExpired,
    State,
    UnexpectedRequest,
)

LISTENER = SaslListener(name="SASL", mechanisms=("PLAIN", "SCRAM-SHA-256"))
SHORT = SaslListener(
    name="SASL", mechanisms=("PLAIN", "SCRAM-SHA-256"), session_ms={"PLAIN": 10_000}
)
NOW_S, NOW_MS = 100.0, 1_700_000_000_000


def frame(key: int) -> bytes:
    return struct.pack(">hhi", key, 0, 1)


def allowed(session: SaslSession, now_s: float = NOW_S) -> set[ApiKey]:
    found = set()
    for key in APIS:
        try:
            session.check_request(frame(key), now_s)
        except UnexpectedRequest:
            continue
        found.add(ApiKey(key))
    return found


def begin(session: SaslSession, mechanism: str = "PLAIN", now_s: float = NOW_S) -> None:
    session.begin(mechanism, PlainExchange(), now_s=now_s)


def complete(
    session: SaslSession, name: str = "alice", now_s: float = NOW_S, expires_ms: int | None = None
) -> Login | Failure:
    success = Success(user=name, expires_ms=expires_ms)
    return session.complete(success, now_s=now_s, now_ms=NOW_MS)


def authenticated(listener: SaslListener = LISTENER) -> SaslSession:
    session = SaslSession(listener, now_s=NOW_S)
    begin(session)
    assert isinstance(complete(session), Login)
    return session


def test_each_state_allows_what_kafka_allows() -> None:
    session = SaslSession(LISTENER, now_s=NOW_S)
    assert allowed(session) == {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}
    begin(session)
    assert allowed(session) == {ApiKey.SASL_AUTHENTICATE}
    complete(session)
    assert allowed(session) == set(APIS)
    session.fail()
    assert allowed(session) == set()


@pytest.mark.parametrize(
    "request_frame", [b"", b"\0", struct.pack(">h", 999), struct.pack(">h", -1)]
)
def test_what_is_no_request_is_refused_before_the_login(request_frame: bytes) -> None:
    session = SaslSession(LISTENER, now_s=NOW_S)
    with pytest.raises(UnexpectedRequest):
        session.check_request(request_frame, NOW_S)
    begin(session)
    with pytest.raises(UnexpectedRequest):
        session.check_request(request_frame, NOW_S)


def test_the_error_names_the_request_as_kafka_does() -> None:
    session = SaslSession(LISTENER, now_s=NOW_S)
    with pytest.raises(UnexpectedRequest) as refused:
        session.check_request(frame(ApiKey.METADATA), NOW_S)
    assert str(refused.value) == "Unexpected Kafka request of type METADATA during SASL handshake."


def test_a_login_without_a_bound_holds_for_ever() -> None:
    session = SaslSession(LISTENER, now_s=NOW_S)
    begin(session)
    login = complete(session)
    assert login == Login(principal=user("alice"), mechanism="PLAIN", session_ms=0, is_again=False)
    session.check_request(frame(ApiKey.METADATA), NOW_S + 1e9)
    assert not session.may_begin(NOW_S + 1e9), "Kafka does not take another login then"


@pytest.mark.parametrize(
    ("listener", "expires_ms", "session_ms"),
    [
        (SHORT, None, 10_000),
        (SHORT, NOW_MS + 3000, 3000),
        (SHORT, NOW_MS + 30_000, 10_000),
        (LISTENER, NOW_MS + 3000, 3000),
        (LISTENER, NOW_MS - 1, 0),
    ],
)
def test_a_session_ends_with_the_bound_or_the_credential(
    listener: SaslListener, expires_ms: int | None, session_ms: int
) -> None:
    session = SaslSession(listener, now_s=NOW_S)
    begin(session)
    login = complete(session, expires_ms=expires_ms)
    assert isinstance(login, Login)
    assert login.session_ms == session_ms
    end_s = NOW_S + session_ms / 1000
    session.check_request(frame(ApiKey.METADATA), end_s)
    with pytest.raises(SessionExpired):
        session.check_request(frame(ApiKey.METADATA), end_s + 0.001)
    session.check_request(frame(ApiKey.SASL_HANDSHAKE), end_s + 0.001)


def test_the_bound_of_another_mechanism_does_not_apply() -> None:
    session = SaslSession(SHORT, now_s=NOW_S)
    begin(session, "SCRAM-SHA-256")
    login = complete(session)
    assert isinstance(login, Login)
    assert login.session_ms == 0


def test_a_client_may_log_in_again_at_once_and_then_once_a_second() -> None:
    session = authenticated(SHORT)
    assert session.may_begin(NOW_S)
    begin(session, now_s=NOW_S)
    complete(session)
    assert not session.may_begin(NOW_S + 0.9)
    assert session.may_begin(NOW_S + 1)
    begin(session, now_s=NOW_S + 5)
    assert allowed(session) == {ApiKey.SASL_AUTHENTICATE}
    login = complete(session, now_s=NOW_S + 5)
    assert isinstance(login, Login)
    assert login.is_again
    session.check_request(frame(ApiKey.METADATA), NOW_S + 15)
    with pytest.raises(SessionExpired):
        session.check_request(frame(ApiKey.METADATA), NOW_S + 15.1)


def test_the_principal_may_not_change() -> None:
    session = authenticated(SHORT)
    begin(session, now_s=NOW_S + 5)
    text = "Cannot change principals during re-authentication from User.alice: User.bob"
    assert complete(session, "bob") == Failure(text)
    assert not session.is_complete


def test_the_mechanism_may_not_change() -> None:
    session = authenticated(SHORT)
    begin(session, "SCRAM-SHA-256", now_s=NOW_S + 5)
    text = (
        "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for re-authentication"
        " of mechanism 'PLAIN'"
    )
    assert complete(session) == Failure(text)


def test_the_general_text_names_the_mechanism_and_nothing_else() -> None:
    session = SaslSession(SHORT, now_s=NOW_S)
    begin(session, "SCRAM-SHA-256")
    general = "due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    assert (
        session.failure_text(Failure()) == f"Authentication failed during authentication {general}"
    )
    assert session.failure_text(Failure("its own")) == "its own"
    again = authenticated(SHORT)
    begin(again, "SCRAM-SHA-256", now_s=NOW_S + 5)
    assert (
        again.failure_text(Failure()) == f"Authentication failed during re-authentication {general}"
    )


def test_only_an_unfinished_login_is_overdue() -> None:
    session = SaslSession(SHORT, now_s=NOW_S)
    assert not session.is_unfinished_since(NOW_S)
    assert session.is_unfinished_since(NOW_S + 0.1)
    begin(session, now_s=NOW_S + 1)
    assert session.is_unfinished_since(NOW_S + 1.1)
    complete(session)
    assert not session.is_unfinished_since(NOW_S + 1e6)
    begin(session, now_s=NOW_S + 5)
    assert not session.is_unfinished_since(NOW_S + 5)
    assert session.is_unfinished_since(NOW_S + 5.1)
    session.fail()
    assert session.state is State.FAILED
    assert session.exchange is None
