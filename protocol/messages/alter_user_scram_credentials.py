"""AlterUserScramCredentials (key 51), v0 (KIP-554).

Source: AlterUserScramCredentialsRequest.json, AlterUserScramCredentialsResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import (
    BYTES,
    INT8,
    INT16,
    INT32,
    STRING,
    Message,
    Payload,
    array,
    wire,
    wire_class,
)


@wire_class
class ScramCredentialDeletion:
    """A credential to delete."""

    name: str = wire(STRING)
    mechanism: int = wire(INT8)


@wire_class
class ScramCredentialUpsertion:
    """A credential to create or replace. The client has derived the salted password."""

    name: str = wire(STRING)
    mechanism: int = wire(INT8)
    iterations: int = wire(INT32)
    salt: Payload = wire(BYTES)
    salted_password: Payload = wire(BYTES)


@wire_class
class AlterUserScramCredentialsRequest(Message):
    """The changes of credentials."""

    api_key = 51
    versions = (0, 0)
    flexible_since = 0

    deletions: tuple[ScramCredentialDeletion, ...] = wire(array(ScramCredentialDeletion))
    upsertions: tuple[ScramCredentialUpsertion, ...] = wire(array(ScramCredentialUpsertion))


@wire_class
class AlterUserScramCredentialsResult:
    """The outcome for one user."""

    user: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)


@wire_class
class AlterUserScramCredentialsResponse(Message):
    """The outcome for each user."""

    api_key = 51
    versions = (0, 0)
    flexible_since = 0

    throttle_time_ms: int = wire(INT32, default=0)
    results: tuple[AlterUserScramCredentialsResult, ...] = wire(
        array(AlterUserScramCredentialsResult)
    )
