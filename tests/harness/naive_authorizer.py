"""A model of the authorizer that looks at every ACL for each decision, after Kafka's documentation."""

from __future__ import annotations

from collections.abc import Iterable

from server.security.acls import Acl, Operation, PatternType, Permission, ResourceType

IMPLIED = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def applies(acl: Acl, kind: ResourceType, name: str) -> bool:
    """Returns whether an ACL is about a resource."""
    if acl.resource_type != kind:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, "*")


def is_about(acl: Acl, principal: str, host: str) -> bool:
    """Returns whether an ACL is about a client."""
    return acl.principal in (principal, "User:*") and acl.host in (host, "*")


def allows(
    acls: Iterable[Acl],
    principal: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    *,
    open_to_all: bool,
) -> bool:
    """Returns whether the ACLs allow an operation."""
    on_resource = [acl for acl in acls if applies(acl, kind, name)]
    mine = [acl for acl in on_resource if is_about(acl, principal, host)]
    for acl in mine:
        if acl.permission == Permission.DENY and acl.operation in (operation, Operation.ALL):
            return False
    enough = {operation, Operation.ALL} | IMPLIED.get(operation, set())
    if any(acl.permission == Permission.ALLOW and acl.operation in enough for acl in mine):
        return True
    return open_to_all and not on_resource


def allows_on_any(
    acls: Iterable[Acl],
    principal: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    *,
    open_to_all: bool,
) -> bool:
    """Returns whether the ACLs allow an operation on some resource, whether it exists or not."""
    acls = list(acls)
    if allows(acls, principal, host, operation, kind, "hardcode", open_to_all=open_to_all):
        return True
    mine = [
        acl
        for acl in acls
        if acl.resource_type == kind
        and is_about(acl, principal, host)
        and acl.operation in (operation, Operation.ALL)
    ]
    denying = [acl for acl in mine if acl.permission == Permission.DENY]
    return any(
        acl.permission == Permission.ALLOW and not any(covers(deny, acl) for deny in denying)
        for acl in mine
    )


def covers(deny: Acl, allow: Acl) -> bool:
    """Returns whether an ACL denies on every resource on which another one allows."""
    if deny.pattern_type == PatternType.PREFIXED:
        is_every = allow.pattern_type == PatternType.LITERAL and allow.resource_name == "*"
        return not is_every and allow.resource_name.startswith(deny.resource_name)
    if deny.resource_name == "*":
        return True
    return allow.pattern_type == PatternType.LITERAL and deny.resource_name == allow.resource_name
