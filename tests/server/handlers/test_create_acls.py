"""CreateAcls: there is no authorizer, as Kafka 4.3.1 without one says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import serving_broker

ACL = AclCreation(
    resource_type=2,
    resource_name="orders",
    resource_pattern_type=3,
    principal="User:alice",
    host="*",
    operation=3,
    permission_type=3,
)
DISABLED = AclCreationResult(
    error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 2])
async def test_each_acl_is_answered_with_security_disabled(
    tmp_path: Path, version: int, count: int
) -> None:
    request = CreateAclsRequest(creations=(ACL,) * count)
    async with serving_broker(tmp_path) as served:
        response = await served.call(request, version, CreateAclsResponse)
    assert response == CreateAclsResponse(results=(DISABLED,) * count)
