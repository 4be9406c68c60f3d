"""Reads the options of `kompakt acls`: resources, principals and operations."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from cli.base.command_end import EXIT_USAGE, CommandFailed
from server.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    fault_of_acl,
)

HOW_TO_NAME = "name a resource with --topic, --group, --transactional-id or --cluster"
NOT_IN_ACLS = (Operation.UNKNOWN, Operation.ANY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The options that name resources."""

    topic: str | None
    group: str | None
    transactional_id: str | None
    cluster: bool
    is_prefixed: bool = False

    def resources(self) -> list[tuple[ResourceType, str]]:
        """Returns the named resources."""
        named = {
            ResourceType.TOPIC: self.topic,
            ResourceType.GROUP: self.group,
            ResourceType.TRANSACTIONAL_ID: self.transactional_id,
            ResourceType.CLUSTER: CLUSTER_NAME if self.cluster else None,
        }
        return [(kind, name) for kind, name in named.items() if name is not None]

    def only_resource(self) -> tuple[ResourceType, str]:
        """Returns the one resource. Raises CommandFailed if there is none, or several."""
        resources = self.resources()
        if len(resources) != 1:
            raise CommandFailed(EXIT_USAGE, HOW_TO_NAME.replace("a resource", "one resource"))
        return resources[0]

    @property
    def pattern_type(self) -> PatternType:
        return PatternType.PREFIXED if self.is_prefixed else PatternType.LITERAL


def operation_of(text: str) -> Operation:
    """Returns an operation from its name, as in `DescribeConfigs` or `describe_configs`."""
    plain = text.replace("_", "").replace("-", "").lower()
    for each in Operation:
        if each not in NOT_IN_ACLS and each.name.replace("_", "").lower() == plain:
            return each
    known = ", ".join(title(each) for each in Operation if each not in NOT_IN_ACLS)
    raise CommandFailed(EXIT_USAGE, f"{text} is no operation: choose one of {known}")


def title(operation: Operation) -> str:
    """Returns an operation's name as Kafka's tools print it."""
    return "".join(word.capitalize() for word in operation.name.split("_"))


def acls_of(
    given: Given,
    allowed: Sequence[str],
    denied: Sequence[str],
    operations: Sequence[str],
    host: str,
) -> list[Acl]:
    """Returns the ACLs that the options describe. Raises CommandFailed if they describe none."""
    resources = given.resources()
    if not resources:
        raise CommandFailed(EXIT_USAGE, HOW_TO_NAME)
    if not allowed and not denied:
        raise CommandFailed(EXIT_USAGE, "name principals with --allow or --deny")
    if not operations:
        raise CommandFailed(EXIT_USAGE, "name operations with --operation")
    permissions = [(each, Permission.ALLOW) for each in allowed]
    permissions += [(each, Permission.DENY) for each in denied]
    acls = [
        Acl(kind, name, given.pattern_type, principal, host, operation_of(text), permission)
        for (kind, name), (principal, permission), text in itertools.product(
            resources, permissions, operations
        )
    ]
    faults = [fault for acl in acls if (fault := fault_of_acl(acl)) is not None]
    if faults:
        raise CommandFailed(EXIT_USAGE, faults[0])
    return acls


def removal_filters(
    given: Given, principal: str | None, operations: Sequence[str]
) -> list[AclFilter]:
    """Returns filters for the ACLs of the named resources. Raises CommandFailed if none is named."""
    resources = given.resources()
    if not resources:
        raise CommandFailed(EXIT_USAGE, HOW_TO_NAME)
    wanted = [operation_of(text) for text in operations] or [Operation.ANY]
    return [
        AclFilter(
            resource_type=kind,
            resource_name=name,
            pattern_type=given.pattern_type,
            principal=principal,
            operation=operation,
        )
        for (kind, name), operation in itertools.product(resources, wanted)
    ]
