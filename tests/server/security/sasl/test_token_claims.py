"""Tokens: which signatures and which claims are accepted."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import OctKey

from server.config.listeners.sasl_listeners import OAuthRules
from server.security.sasl.exchange import TokenFacts
from server.security.sasl.token_claims import (
    TokenRefused,
    UnknownKey,
    facts_of,
    parse_keys,
    validated,
)
from tests.harness.token_issuer import TokenIssuer

RULES = OAuthRules(
    keys_url="file:///keys",
    issuer="",
    audiences=(),
    clock_skew_s=30,
    scope_claim="scope",
    subject_claim="sub",
    refresh_ms=1000,
    retry_ms=100,
    retry_max_ms=1000,
)
NOW_S = 1_700_000_000
CLAIMS: dict[str, Any] = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 60}
ISSUER = TokenIssuer()


def facts(rules: OAuthRules = RULES, **claims: Any) -> TokenFacts:
    given = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    return facts_of(given, rules, now_s=NOW_S)


@pytest.mark.parametrize("algorithm", ["RS256", "PS512", "ES256"])
def test_a_signed_token_is_accepted(algorithm: str) -> None:
    issuer = TokenIssuer()
    issuer.new_key(algorithm)
    now_s = time.time()
    found = validated(issuer.token("alice"), parse_keys(issuer.key_set), RULES, now_s=now_s)
    assert found.subject == "alice"
    assert 290_000 < found.expires_ms - now_s * 1000 <= 300_000


def encoded(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


def test_no_unsigned_token_is_accepted() -> None:
    keys = parse_keys(ISSUER.key_set)
    _, claims, signature = ISSUER.token().split(".")
    for algorithm in ("none", "None", "HS256"):
        for kid in ("key-1", None):
            header = encoded({"alg": algorithm} | ({"kid": kid} if kid else {}))
            for end in ("", signature):
                with pytest.raises(TokenRefused):
                    validated(f"{header}.{claims}.{end}", keys, RULES, now_s=time.time())


def test_the_public_key_is_no_shared_secret() -> None:
    """A token with a signature that everyone can make, because the issuer publishes the key."""
    secret = OctKey.import_key(ISSUER.key_set)
    forged = jwt.encode(
        {"alg": "HS256", "kid": "key-1"}, {"sub": "root", "iat": 1, "exp": 1 << 33}, secret
    )
    with pytest.raises(TokenRefused):
        validated(forged, parse_keys(ISSUER.key_set), RULES, now_s=time.time())


@given(st.data())
def test_no_changed_token_is_accepted(data: st.DataObject) -> None:
    token = bytearray(TOKEN.encode())
    position = data.draw(st.integers(0, len(token) - 1))
    token[position] = data.draw(st.integers(33, 126).filter(lambda byte: byte != token[position]))
    if token.decode() == TOKEN or is_same_signature(token.decode()):
        return
    with pytest.raises(TokenRefused):
        validated(token.decode(), parse_keys(ISSUER.key_set), RULES, now_s=time.time())


TOKEN = ISSUER.token(lifetime_s=3000)


def is_same_signature(token: str) -> bool:
    """Returns whether only bits differ that base64 does not use."""
    first, _, last = token.rpartition(".")
    own, _, signature = TOKEN.rpartition(".")
    return first == own and last[:-1] == signature[:-1]


def test_an_unknown_key_is_told_apart() -> None:
    other = TokenIssuer()
    other.new_key()
    with pytest.raises(UnknownKey):
        validated(other.token(), parse_keys(ISSUER.key_set), RULES, now_s=time.time())


def test_a_key_of_another_issuer_with_the_same_name_is_refused() -> None:
    with pytest.raises(TokenRefused, match="BadSignature"):
        validated(TokenIssuer().token(), parse_keys(ISSUER.key_set), RULES, now_s=time.time())


@pytest.mark.parametrize("token", ["", "a", "a.b.c", "..", "a" * 100_000, "." * 1000])
def test_another_text_is_refused(token: str) -> None:
    with pytest.raises(TokenRefused):
        validated(token, parse_keys(ISSUER.key_set), RULES, now_s=time.time())


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"keys":[]}', b'{"keys":[{"kty":"RSA"}]}'])
def test_another_key_set_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse_keys(text)


def test_the_claims_of_a_valid_token() -> None:
    assert facts() == TokenFacts(subject="alice", expires_ms=(NOW_S + 60) * 1000)
    assert facts(scope="read").subject == "alice"
    assert facts(scope=["read", "write"]).subject == "alice"
    assert facts(nbf=NOW_S - 1, iss="any", jti="x").subject == "alice"
    assert facts(sub=" alice ").subject == "alice"


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": None}, "exp or iat is missing"),
        ({"iat": None}, "exp or iat is missing"),
        ({"exp": "soon"}, "exp is not a time"),
        ({"exp": True}, "exp is not a time"),
        ({"exp": float("inf")}, "exp is not a time"),
        ({"exp": float("nan")}, "exp is not a time"),
        ({"exp": -1}, "exp is not a time"),
        ({"exp": 1 << 80}, "exp is not a time"),
        ({"exp": NOW_S - 30}, "it has expired"),
        ({"iat": NOW_S + 31}, "issued in the future"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"sub": None}, "sub is not a name"),
        ({"sub": ""}, "sub is not a name"),
        ({"sub": "  "}, "sub is not a name"),
        ({"sub": 7}, "sub is not a name"),
        ({"sub": "x" * 1025}, "sub is not a name"),
        ({"scope": ["a", "a"]}, "scopes are not distinct"),
        ({"scope": ["a", " "]}, "scopes are not distinct"),
        ({"scope": [1]}, "scopes are not distinct"),
        ({"aud": "kafka"}, "audience"),
        ({"aud": ["kafka"]}, "audience"),
    ],
)
def test_a_wrong_claim_is_refused(claims: dict[str, Any], why: str) -> None:
    with pytest.raises(TokenRefused, match=why):
        facts(**claims)


def test_clocks_may_differ_a_little() -> None:
    assert facts(exp=NOW_S - 29).subject == "alice"
    assert facts(iat=NOW_S + 30, nbf=NOW_S + 30).subject == "alice"


@pytest.mark.parametrize(
    ("audience", "is_accepted"),
    [("kafka", True), (["x", "kafka"], True), ("x", False), (["x"], False), ([], False),
     (None, False), (7, False), ([7], False)],
)  # fmt: skip
def test_the_audience_must_be_an_expected_one(audience: Any, is_accepted: bool) -> None:
    rules = replace(RULES, audiences=("kafka", "other"))
    if is_accepted:
        assert facts(rules, aud=audience).subject == "alice"
    else:
        with pytest.raises(TokenRefused, match="audience"):
            facts(rules, aud=audience)


def test_the_issuer_must_be_the_expected_one() -> None:
    rules = replace(RULES, issuer="https://idp")
    assert facts(rules, iss="https://idp").subject == "alice"
    for issuer in ("https://other", None, ["https://idp"]):
        with pytest.raises(TokenRefused, match="issuer"):
            facts(rules, iss=issuer)


def test_claims_may_have_other_names() -> None:
    rules = replace(RULES, subject_claim="client_id", scope_claim="scp")
    assert facts(rules, client_id="bob", sub=None, scope=["a", "a"]).subject == "bob"
    with pytest.raises(TokenRefused, match="client_id"):
        facts(rules)


def test_keys_in_deep_brackets_are_no_key_set() -> None:
    with pytest.raises(ValueError, match="not a JSON Web Key Set"):
        parse_keys(b"[" * 100_000)
