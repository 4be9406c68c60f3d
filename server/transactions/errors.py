"""The coordinator's errors as the versions of its APIs know them."""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from server.dispatch import RequestContext


def in_terms_of(error_code: ErrorCode, context: RequestContext, *, fenced_since: int) -> ErrorCode:
    """An error in a client's terms.

    Args:
        fenced_since: the first version that knows PRODUCER_FENCED (KIP-588).
    """
    is_old = context.header.api_version < fenced_since
    if is_old and error_code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error_code
