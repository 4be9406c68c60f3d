"""AlterUserScramCredentials: bytes as clients send and expect them."""

from __future__ import annotations

from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v0() -> None:
    deletion = b"\2" + b"\2u\1\0"
    upsertion = b"\2" + b"\2v\2\0\0\x10\0\3sa\4key\0"
    request = decode(AlterUserScramCredentialsRequest, 0, memoryview(deletion + upsertion + b"\0"))
    assert request == AlterUserScramCredentialsRequest(
        deletions=(ScramCredentialDeletion(name="u", mechanism=1),),
        upsertions=(
            ScramCredentialUpsertion(
                name="v", mechanism=2, iterations=4096, salt=b"sa", salted_password=b"key"
            ),
        ),
    )


def test_response_v0() -> None:
    result = AlterUserScramCredentialsResult(user="u", error_code=93, error_message="no")
    response = AlterUserScramCredentialsResponse(results=(result,))
    (part,) = encode(response, 0)
    assert part == b"\0\0\0\0" + b"\2" + b"\2u\0\x5d\3no\0" + b"\0"
