"""DescribeAcls: access is not controlled, which is not the same as "there are no ACLs"."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import serving_broker

ANY = 1


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_security_is_disabled(tmp_path: Path, version: int) -> None:
    request = DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    async with serving_broker(tmp_path) as served:
        response = await served.call(request, version, DescribeAclsResponse)
    assert response.error_code == ErrorCode.SECURITY_DISABLED
    assert response.error_message == "No Authorizer is configured on the broker"
    assert response.resources == ()
