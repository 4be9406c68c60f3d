"""Carries out `kompakt acls add` and `remove`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import typer

from cleaner.rules.text import count_text
from cli.acls.show import check_code, described, print_acls
from cli.base.broker_client import connected
from protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from server.security.acls import Acl, AclFilter


async def add_acls(bootstrap: str, acls: Sequence[Acl], *, as_json: bool) -> int:
    """Add ACLs and print them. Returns the exit code."""
    request = CreateAclsRequest(
        creations=tuple(
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        )
    )
    async with connected(bootstrap) as client:
        answer = await client.call(request, CreateAclsResponse)
    for result in answer.results:
        check_code(result.error_code, result.error_message)
    print_acls(list(acls), as_json=as_json)
    return 0


async def remove_acls(
    bootstrap: str,
    filters: Sequence[AclFilter],
    ask: Callable[[str], None],
    *,
    as_json: bool,
) -> int:
    """Remove the ACLs that the filters select, after showing them. Returns the exit code."""
    async with connected(bootstrap) as client:
        acls = await described(client, filters)
        print_acls(acls, as_json=as_json)
        if not acls:
            return 0
        ask(f"Remove {count_text(len(acls), 'ACL')}?")
        request = DeleteAclsRequest(filters=tuple(map(_exactly, acls)))
        answer = await client.call(request, DeleteAclsResponse)
    for result in answer.filter_results:
        check_code(result.error_code, result.error_message)
    if not as_json:
        typer.echo("removed")
    return 0


def _exactly(acl: Acl) -> DeleteAclsFilter:
    """Returns the filter for the one ACL that was shown."""
    return DeleteAclsFilter(
        resource_type_filter=acl.resource_type,
        resource_name_filter=acl.resource_name,
        pattern_type_filter=acl.pattern_type,
        principal_filter=acl.principal,
        host_filter=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
