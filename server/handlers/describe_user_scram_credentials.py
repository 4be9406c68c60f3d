"""DescribeUserScramCredentials (key 50), v0.

Behaviour: lists each user's mechanisms with their iterations, and no secret part. A request for all
users gets them in the order of their names. A name that a request contains twice is refused.
Source: KIP-554; Apache Kafka, ScramImage.java `describe`.
"""

from __future__ import annotations

from collections import Counter

from protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from protocol.wire.error_codes import ErrorCode
from server.request_context import RequestContext
from server.runtime.paced_sort import paced_sort


async def handle(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """Answer each requested name once."""
    times: Counter[str] = Counter()
    if request.users:
        async for user in context.pace.paced(request.users):
            times[user.name] += 1
    else:
        names = (user for user, _ in context.broker.scram.credentials())
        async for name in paced_sort(names, context.pace):
            times[name] = 1
    results = [
        _described(name, context) if count == 1 else _duplicate(name)
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


def _described(name: str, context: RequestContext) -> DescribeUserScramCredentialsResult:
    credentials = context.broker.scram.credentials_of(name)
    if not credentials:
        return _missing(name)
    return DescribeUserScramCredentialsResult(
        user=name,
        error_code=ErrorCode.NONE,
        error_message=None,
        credential_infos=tuple(
            CredentialInfo(mechanism=mechanism, iterations=verifier.iterations)
            for mechanism, verifier in credentials.items()
        ),
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
