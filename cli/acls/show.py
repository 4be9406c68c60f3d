"""Carries out `kompakt acls list`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer

from cleaner.rules.text import count_text
from cli.acls.patterns import Given, title
from cli.base.broker_client import BrokerClient, connected
from cli.base.command_end import EXIT_FAILED, CommandFailed
from cli.base.output import print_json, print_table
from cli.base.topic_facts import refusal
from protocol.messages.describe_acls import DescribeAclsResponse
from protocol.wire.error_codes import ErrorCode
from server.security.acl_messages import acls_of, describe_request
from server.security.acls import (
    Acl,
    AclFilter,
    PatternType,
)

NO_AUTHORIZER = (
    "the broker enforces no ACLs: start it with"
    " authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
)


async def show_acls(bootstrap: str, given: Given, principal: str | None, *, as_json: bool) -> int:
    """Print the ACLs that apply to the given resources, or all. Returns the exit code."""
    resources = given.resources()
    filters = [
        AclFilter(
            resource_type=kind,
            resource_name=name,
            pattern_type=PatternType.MATCH,
            principal=principal,
        )
        for kind, name in resources
    ]
    async with connected(bootstrap) as client:
        acls = await described(client, filters or [AclFilter(principal=principal)])
    print_acls(acls, as_json=as_json)
    return 0


async def described(client: BrokerClient, filters: Iterable[AclFilter]) -> list[Acl]:
    """Returns the ACLs that the filters select, in their order. Raises CommandFailed."""
    found: dict[Acl, None] = {}
    for wanted in filters:
        answer = await client.call(describe_request(wanted), DescribeAclsResponse)
        check_code(answer.error_code, answer.error_message)
        for resource in answer.resources:
            found |= dict.fromkeys(acls_of(resource))
    return sorted(found)


def check_code(code: int, message: str | None) -> None:
    """Raise CommandFailed for an error code of the ACL requests."""
    if code == ErrorCode.SECURITY_DISABLED:
        raise CommandFailed(EXIT_FAILED, NO_AUTHORIZER)
    if code:
        raise CommandFailed(EXIT_FAILED, refusal(code, message))


def print_acls(acls: list[Acl], *, as_json: bool) -> None:
    """Print ACLs as a table, or for programs."""
    if as_json:
        print_json({"acls": [acl_json(acl) for acl in acls]})
        return
    titles = ("resource", "principal", "host", "operation", "permission")
    if acls:
        print_table(titles, list(map(_row, acls)), texts=set(titles))
    typer.echo(count_text(len(acls), "ACL"))


def acl_json(acl: Acl) -> dict[str, Any]:
    """Returns an ACL for programs."""
    return {
        field: getattr(value, "name", value) for field, value in zip(acl._fields, acl, strict=True)
    }


def _row(acl: Acl) -> tuple[str, ...]:
    is_prefix = acl.pattern_type is PatternType.PREFIXED
    name = f"{acl.resource_name}..." if is_prefix else acl.resource_name
    kind = acl.resource_type.name.lower().replace("_", " ")
    permission = acl.permission.name.lower()
    return f"{kind} {name}", acl.principal, acl.host, title(acl.operation), permission
