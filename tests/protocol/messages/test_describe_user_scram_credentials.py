"""DescribeUserScramCredentials: bytes as clients send and expect them."""

from __future__ import annotations

from protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    UserName,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v0_null_stands_for_all_users() -> None:
    for data, users in ((b"\0\0", None), (b"\2\2u\0\0", (UserName(name="u"),))):
        request = DescribeUserScramCredentialsRequest(users=users)
        assert decode(DescribeUserScramCredentialsRequest, 0, memoryview(data)) == request


def test_response_v0() -> None:
    result = DescribeUserScramCredentialsResult(
        user="u",
        error_code=0,
        error_message=None,
        credential_infos=(CredentialInfo(mechanism=1, iterations=4096),),
    )
    response = DescribeUserScramCredentialsResponse(
        error_code=0, error_message=None, results=(result,)
    )
    (part,) = encode(response, 0)
    info = b"\2" + b"\1\0\0\x10\0" + b"\0"
    assert part == b"\0\0\0\0" + b"\0\0\0" + b"\2" + b"\2u\0\0\0" + info + b"\0" + b"\0"
