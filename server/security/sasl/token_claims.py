"""Validates a token: its signature with the issuer's keys, then its claims. Pure, but takes up to a
millisecond.

Only signatures with key pairs are accepted: a key that the issuer publishes proves nothing as a shared
secret, and `none` is no signature. A token with an audience needs an expected one, as in RFC 7519 and
Kafka.

Source: RFC 7519; Apache Kafka, BrokerJwtValidator.java, ClaimValidationUtils.java.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from joserfc import jwt
from joserfc.errors import InvalidKeyIdError
from joserfc.jwk import KeySet

from server.config.listeners.sasl_listeners import OAuthRules
from server.security.sasl.exchange import TokenFacts

ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519",
    "EdDSA",
)  # fmt: skip
SUBJECT_CHARACTERS_MAX = 1024


class TokenRefused(Exception):
    """A token is not valid. The text says why, without the token."""


class UnknownKey(TokenRefused):
    """The token names a key that the issuer did not publish yet, or no longer publishes."""


def parse_keys(text: bytes) -> KeySet:
    """Returns the keys of a JSON Web Key Set. Raises ValueError."""
    try:
        return KeySet.import_key_set(json.loads(text))
    except Exception as error:  # noqa: BLE001
        # The library documents no list of errors, and deep JSON raises RecursionError.
        raise ValueError(f"not a JSON Web Key Set: {error}") from None


def validated(token: str, keys: KeySet, rules: OAuthRules, *, now_s: float) -> TokenFacts:
    """Returns the facts in a valid token.

    Args:
        now_s: the wall time in seconds since 1970.

    Raises:
        TokenRefused, UnknownKey: the token is not valid.
    """
    try:
        claims = jwt.decode(token, keys, algorithms=ALGORITHMS).claims
    except InvalidKeyIdError:
        raise UnknownKey("its key is not among the issuer's") from None
    except Exception as error:  # noqa: BLE001
        # A client has written the token, and the library documents no list of errors.
        raise TokenRefused(f"it cannot be verified ({type(error).__name__})") from None
    return facts_of(claims, rules, now_s=now_s)


def facts_of(claims: Mapping[str, Any], rules: OAuthRules, *, now_s: float) -> TokenFacts:
    """Returns the facts in the claims of a token whose signature was verified. Raises TokenRefused."""
    expires_s = _time(claims, "exp")
    issued_s = _time(claims, "iat")
    if expires_s is None or issued_s is None:
        raise TokenRefused("the claim exp or iat is missing")
    _check_times(expires_s, issued_s, _time(claims, "nbf"), rules, now_s)
    _check_issuer_and_audience(claims, rules)
    _check_scopes(claims.get(rules.scope_claim))
    subject = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not 0 < len(subject.strip()) <= SUBJECT_CHARACTERS_MAX:
        raise TokenRefused(f"the claim {rules.subject_claim} is not a name")
    return TokenFacts(subject=subject.strip(), expires_ms=int(expires_s * 1000))


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TokenRefused(f"the claim {name} is not a time")
    if not 0 <= value < 1 << 40:
        raise TokenRefused(f"the claim {name} is not a time")
    return value


def _check_times(
    expires_s: float, issued_s: float, begins_s: float | None, rules: OAuthRules, now_s: float
) -> None:
    if now_s - rules.clock_skew_s >= expires_s:
        raise TokenRefused("it has expired")
    if issued_s - rules.clock_skew_s > now_s:
        raise TokenRefused("it was issued in the future")
    if begins_s is not None and begins_s - rules.clock_skew_s > now_s:
        raise TokenRefused("it is not valid yet")


def _check_issuer_and_audience(claims: Mapping[str, Any], rules: OAuthRules) -> None:
    if rules.issuer and claims.get("iss") != rules.issuer:
        raise TokenRefused("its issuer is not the expected one")
    audience = claims.get("aud", [])
    audiences = audience if isinstance(audience, list) else [audience]
    is_expected = any(each in rules.audiences for each in audiences if isinstance(each, str))
    if (audiences or rules.audiences) and not is_expected:
        raise TokenRefused("its audience is not an expected one")


def _check_scopes(scopes: object) -> None:
    """Check that no scope is empty or listed twice, as Kafka does; a broker does not use them."""
    if isinstance(scopes, list):
        names = [each.strip() if isinstance(each, str) else "" for each in scopes]
        if "" in names or len(set(names)) < len(names):
            raise TokenRefused("its scopes are not distinct names")
