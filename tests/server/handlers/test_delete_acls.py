"""DeleteAcls: there is no authorizer, as Kafka 4.3.1 without one says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import serving_broker

FILTER = DeleteAclsFilter(
    resource_type_filter=2,
    resource_name_filter=None,
    pattern_type_filter=3,
    principal_filter=None,
    host_filter=None,
    operation=3,
    permission_type=3,
)
DISABLED = DeleteAclsFilterResult(
    error_code=ErrorCode.SECURITY_DISABLED,
    error_message="No Authorizer is configured.",
    matching_acls=(),
)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 2])
async def test_each_filter_is_answered_with_security_disabled(
    tmp_path: Path, version: int, count: int
) -> None:
    request = DeleteAclsRequest(filters=(FILTER,) * count)
    async with serving_broker(tmp_path) as served:
        response = await served.call(request, version, DeleteAclsResponse)
    assert response == DeleteAclsResponse(filter_results=(DISABLED,) * count)
