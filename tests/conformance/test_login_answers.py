"""The answers to each right and wrong step of a login are Apache Kafka 4.3.1's.

`logins/wire.txt` was written by `tests.harness.login_answers` against Kafka 4.3.1.
"""

from __future__ import annotations

from pathlib import Path

from tests.harness.login_answers import ENDED, all_answers, read
from tests.harness.secured_listeners import SecuredListeners

KAFKA = read((Path(__file__).parent / "logins" / "wire.txt").read_text("utf-8"))
CHALLENGE = "token NONE '' r=...,s=...,i=4096"
OURS = {
    # A request that does not belong to the login closes the connection, without an answer.
    ("SASL", "Metadata instead of a token"): f"handshake NONE; {ENDED}",
    ("SASL", "two handshakes"): f"handshake NONE; {ENDED}",
    # RFC 7628: after an error the client only confirms it. Kafka takes another token.
    ("SASL", "OAUTHBEARER: another token after an error"): (
        "handshake NONE; token NONE '' {\"status\":\"invalid_token\"}; token"
        " SASL_AUTHENTICATION_FAILED 'Authentication failed during authentication due to invalid"
        f" credentials with SASL mechanism OAUTHBEARER'; {ENDED}"
    ),
    # Kafka closes the connection without saying why.
    ("SHORT", "again by another mechanism"): (
        f"handshake NONE; token NONE '' for 2500 ms; handshake NONE; {CHALLENGE}; token"
        " SASL_AUTHENTICATION_FAILED \"SASL mechanism 'SCRAM-SHA-256' requested by client is not"
        f" supported for re-authentication of mechanism 'PLAIN'\"; {ENDED}"
    ),
    # OpenSSL's alerts say what is wrong with the certificate; Java's do not.
    ("MUTUAL", "an expired certificate"): "alert SSLV3_ALERT_CERTIFICATE_EXPIRED",
    ("MUTUAL", "a certificate of another authority"): "alert TLSV1_ALERT_UNKNOWN_CA",
    ("MUTUAL", "no certificate"): "alert TLSV13_ALERT_CERTIFICATE_REQUIRED",
} | {
    # An unknown user gets a challenge like any other, so the answers do not show who exists.
    ("SASL", f"{mechanism}: an unknown user"): KAFKA[
        "SASL", f"{mechanism}: a wrong password"
    ]
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
}  # fmt: skip
"""The answers that differ, on purpose."""


async def test_each_step_of_a_login_gets_kafkas_answer(secured: SecuredListeners) -> None:
    assert OURS.keys() <= KAFKA.keys()
    assert await all_answers(secured) == KAFKA | OURS
