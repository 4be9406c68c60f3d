"""Checks changes of SCRAM credentials, in Kafka's words. Pure.

A user may occur once in a request, even with different mechanisms.

Source: KIP-554; Apache Kafka, ScramControlManager.java `alterCredentials`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from protocol.wire.error_codes import ErrorCode
from server.security.scram_credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramMechanism,
    ScramVerifier,
    verifier_of,
)

NAME_BYTES_MAX = 1024
SECRET_BYTES_MAX = 1024
"""The most bytes of a salt and of a salted password; a digest has 64 at most."""

UserMechanism = tuple[str, ScramMechanism]


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """Removes a credential."""


ScramChange = ScramVerifier | ScramDeletion


@dataclass(frozen=True, slots=True)
class ScramRefusal:
    """Why a user's credential is not changed."""

    error_code: ErrorCode
    message: str

    @classmethod
    def missing(cls) -> Self:
        """Returns the refusal to delete a credential that does not exist."""
        text = "Attempt to delete a user credential that does not exist"
        return cls(ErrorCode.RESOURCE_NOT_FOUND, text)


@dataclass(slots=True)
class ScramChanges:
    """The changes of one request, checked one by one: first all deletions, then all others."""

    exists: Callable[[UserMechanism], bool]
    """Whether a user has a credential for a mechanism."""
    accepted: dict[UserMechanism, ScramChange] = field(default_factory=dict)
    refused: dict[str, ScramRefusal] = field(default_factory=dict)
    """By user."""
    _keys: dict[str, UserMechanism] = field(default_factory=dict)
    """The accepted change of each user."""

    def delete(self, user: str, mechanism: int) -> None:
        """Check a deletion."""
        if self._is_new(user):
            fault = fault_of_user(user, mechanism)
            if fault is None and not self.exists((user, ScramMechanism(mechanism))):
                fault = ScramRefusal.missing()
            self._settle(user, mechanism, fault, ScramDeletion)

    def set(
        self, user: str, mechanism: int, *, iterations: int, salt: bytes, salted_password: bytes
    ) -> None:
        """Check a new credential, and derive its verifier."""
        if self._is_new(user):
            fault = fault_of_user(user, mechanism) or fault_of_secrets(
                iterations, salt, salted_password
            )
            self._settle(
                user,
                mechanism,
                fault,
                lambda: verifier_of(
                    ScramMechanism(mechanism), salted_password, salt=salt, iterations=iterations
                ),
            )

    def _is_new(self, user: str) -> bool:
        """Returns whether the user was not named before; refuses it if its first change was accepted."""
        key = self._keys.pop(user, None)
        if key is None:
            return user not in self.refused
        del self.accepted[key]
        text = "A user credential cannot be altered twice in the same request"
        self.refused[user] = ScramRefusal(ErrorCode.DUPLICATE_RESOURCE, text)
        return False

    def _settle(
        self, user: str, mechanism: int, fault: ScramRefusal | None, make: Callable[[], ScramChange]
    ) -> None:
        if fault is not None:
            self.refused[user] = fault
            return
        key = (user, ScramMechanism(mechanism))
        self._keys[user] = key
        self.accepted[key] = make()


def fault_of_user(user: str, mechanism: int) -> ScramRefusal | None:
    """Returns why no credential can have this user or this mechanism, or None."""
    if not user:
        return _unacceptable("Username must not be empty")
    if len(user.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX or "\0" in user:
        return _unacceptable(f"Username must have at most {NAME_BYTES_MAX} bytes and no NUL")
    if mechanism not in list(ScramMechanism):
        return ScramRefusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return None


def fault_of_secrets(iterations: int, salt: bytes, salted_password: bytes) -> ScramRefusal | None:
    """Returns why a credential is not acceptable, or None."""
    if iterations < ITERATIONS_MIN:
        return _unacceptable("Too few iterations")
    if iterations > ITERATIONS_MAX:
        return _unacceptable("Too many iterations")
    if not all(0 < len(each) <= SECRET_BYTES_MAX for each in (salt, salted_password)):
        text = f"The salt and the salted password must have 1 to {SECRET_BYTES_MAX} bytes"
        return _unacceptable(text)
    return None


def _unacceptable(message: str) -> ScramRefusal:
    return ScramRefusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
