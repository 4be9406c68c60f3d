"""DescribeUserScramCredentials (key 50), v0 (KIP-554).

Source: DescribeUserScramCredentialsRequest.json, DescribeUserScramCredentialsResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import INT8, INT16, INT32, STRING, Message, array, wire, wire_class


@wire_class
class UserName:
    """A user."""

    name: str = wire(STRING)


@wire_class
class DescribeUserScramCredentialsRequest(Message):
    """The users to describe; null or an empty array means all."""

    api_key = 50
    versions = (0, 0)
    flexible_since = 0

    users: tuple[UserName, ...] | None = wire(array(UserName), nullable_since=0)


@wire_class
class CredentialInfo:
    """A credential, without its secret parts."""

    mechanism: int = wire(INT8)
    iterations: int = wire(INT32)


@wire_class
class DescribeUserScramCredentialsResult:
    """The credentials of one user."""

    user: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)
    credential_infos: tuple[CredentialInfo, ...] = wire(array(CredentialInfo))


@wire_class
class DescribeUserScramCredentialsResponse(Message):
    """The credentials of each user."""

    api_key = 50
    versions = (0, 0)
    flexible_since = 0

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)
    results: tuple[DescribeUserScramCredentialsResult, ...] = wire(
        array(DescribeUserScramCredentialsResult)
    )
