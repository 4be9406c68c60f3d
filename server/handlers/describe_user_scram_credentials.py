"""DescribeUserScramCredentials (key 50), v0.

Behaviour: no user has SCRAM credentials. A user that is requested by name does not exist; a request for
all users gets an empty list. A name that a request contains twice is refused.
Source: KIP-554; Apache Kafka, ScramImage.java `describe`.
"""

from __future__ import annotations

from collections import Counter

from protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from protocol.wire.error_codes import ErrorCode
from server.dispatch import RequestContext


async def handle(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """Answer each requested name once."""
    times: Counter[str] = Counter()
    async for user in context.pace.paced(request.users or ()):
        times[user.name] += 1
    results = [
        _missing(name) if count == 1 else _duplicate(name)
        async for name, count in context.pace.paced(times.items())
    ]
    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.NONE, error_message=None, results=tuple(results)
    )


def refuse(
    request: DescribeUserScramCredentialsRequest,
    context: RequestContext,
    error_code: ErrorCode,
    message: str,
) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(
        error_code=error_code, error_message=message, results=()
    )


def _missing(name: str) -> DescribeUserScramCredentialsResult:
    text = f"Attempt to describe a user credential that does not exist: {name}"
    return _refused(name, ErrorCode.RESOURCE_NOT_FOUND, text)


def _duplicate(name: str) -> DescribeUserScramCredentialsResult:
    text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    return _refused(name, ErrorCode.DUPLICATE_RESOURCE, text)


def _refused(name: str, error_code: ErrorCode, message: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=name, error_code=error_code, error_message=message, credential_infos=()
    )
