"""Changes of SCRAM credentials: Kafka's checks, with the cases of its ScramControlManagerTest."""

from __future__ import annotations

import pytest

from protocol.wire.error_codes import ErrorCode
from server.security.scram_changes import ScramChanges, ScramDeletion, ScramRefusal
from server.security.scram_credentials import ScramMechanism, ScramVerifier

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512


def changes(*existing: tuple[str, ScramMechanism]) -> ScramChanges:
    return ScramChanges(exists=lambda key: key in existing)


def put(
    checked: ScramChanges,
    user: str,
    mechanism: int = SHA_256,
    iterations: int = 4096,
    salt: bytes = b"salt",
    salted: bytes = b"salted",
) -> None:
    checked.set(user, mechanism, iterations=iterations, salt=salt, salted_password=salted)


def codes(checked: ScramChanges) -> dict[str, ErrorCode]:
    return {name: refusal.error_code for name, refusal in checked.refused.items()}


def test_accepted_changes_keep_only_the_verifier() -> None:
    checked = changes(("bob", SHA_512))
    checked.delete("bob", SHA_512)
    put(checked, "alice")
    assert not checked.refused
    assert checked.accepted["bob", SHA_512] == ScramDeletion()
    verifier = checked.accepted["alice", SHA_256]
    assert isinstance(verifier, ScramVerifier)
    assert b"salted" not in (verifier.stored_key, verifier.server_key)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"iterations": 4095}, "Too few iterations"),
        ({"iterations": -1}, "Too few iterations"),
        ({"iterations": 16385}, "Too many iterations"),
        ({"salt": b""}, "The salt and the salted password must have 1 to 1024 bytes"),
        ({"salted": b""}, "The salt and the salted password must have 1 to 1024 bytes"),
        ({"salt": b"s" * 1025}, "The salt and the salted password must have 1 to 1024 bytes"),
    ],
)
def test_an_unacceptable_credential_is_refused(given: dict[str, int], text: str) -> None:
    checked = changes()
    put(checked, "alice", **given)  # type: ignore[arg-type]
    assert checked.refused == {"alice": ScramRefusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)}
    assert not checked.accepted


@pytest.mark.parametrize("iterations", [4096, 16384])
def test_the_bounds_of_iterations_are_accepted(iterations: int) -> None:
    checked = changes()
    put(checked, "alice", iterations=iterations)
    assert not checked.refused


@pytest.mark.parametrize("mechanism", [0, 3, -1, 127])
def test_an_unknown_mechanism_is_refused(mechanism: int) -> None:
    checked = changes()
    put(checked, "alice", mechanism)
    checked.delete("bob", mechanism)
    refusal = ScramRefusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    assert checked.refused == {"alice": refusal, "bob": refusal}


def test_a_missing_credential_cannot_be_deleted() -> None:
    checked = changes(("alice", SHA_512))
    checked.delete("alice", SHA_256)
    assert checked.refused == {"alice": ScramRefusal.missing()}


@pytest.mark.parametrize("name", ["", "u" * 1025, "ü" * 513, "a\0b"])
def test_a_bad_name_is_refused(name: str) -> None:
    checked = changes()
    put(checked, name)
    assert codes(checked) == {name: ErrorCode.UNACCEPTABLE_CREDENTIAL}


def test_a_user_occurs_once_even_with_two_mechanisms() -> None:
    checked = changes(("alice", SHA_256), ("bob", SHA_256), ("carol", SHA_256))
    checked.delete("alice", SHA_256)
    checked.delete("alice", SHA_512)
    checked.delete("bob", SHA_256)
    put(checked, "bob", SHA_512)
    put(checked, "dave", SHA_256)
    put(checked, "dave", SHA_512)
    put(checked, "dave", SHA_256)
    checked.delete("carol", SHA_256)
    assert codes(checked) == dict.fromkeys(("alice", "bob", "dave"), ErrorCode.DUPLICATE_RESOURCE)
    assert list(checked.accepted) == [("carol", SHA_256)]


def test_a_refused_user_stays_refused_for_its_first_fault() -> None:
    checked = changes()
    checked.delete("alice", SHA_256)
    put(checked, "alice")
    assert codes(checked) == {"alice": ErrorCode.RESOURCE_NOT_FOUND}
    assert not checked.accepted
