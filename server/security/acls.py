"""ACLs: who may, or may not, perform which operation on which resources, from which host.

    Topic:PREFIXED:orders-   User:alice   from *   READ   ALLOW
    resource pattern         principal    host     op     permission

Filters select ACLs: a null field or ANY matches everything, and the pattern type MATCH selects every
pattern that applies to a resource of the name.

The numbers are on the wire and never change. Source: KIP-11, KIP-290; Apache Kafka, AclBinding.java,
AclBindingFilter.java, ResourcePatternFilter.java, StandardAcl.java.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

WILDCARD = "*"
"""Any resource (as a literal name), or any host."""
ANY_USER = "User:*"
"""The principal that stands for every principal."""
CLUSTER_NAME = "kafka-cluster"
"""The only name of the resource type CLUSTER."""


class _Code(enum.IntEnum):
    """A number on the wire. As in Kafka, numbers of later releases are read as UNKNOWN, which is 0."""

    @classmethod
    def _missing_(cls, value: object) -> _Code | None:
        return cls(0) if isinstance(value, int) else None

    @property
    def title(self) -> str:
        """Kafka's name of it: `TransactionalId`, `ClusterAction`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class ResourceType(_Code):
    """The type of a resource."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Code):
    """How a pattern's name applies to the names of resources."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(_Code):
    """An operation on a resource; its number is also the number of its bit (KIP-430)."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(_Code):
    """Whether an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One ACL. Two ACLs with equal fields are the same ACL."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        """Returns the ACL as in Kafka's log of authorizations."""
        return (
            f"StandardAcl(resourceType={self.resource_type.name}, resourceName={self.resource_name},"
            f" patternType={self.pattern_type.name}, principal={self.principal}, host={self.host},"
            f" operation={self.operation.name}, permissionType={self.permission.name})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Selects ACLs; by default all of them."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    @property
    def only(self) -> Acl | None:
        """The one ACL that the filter can match; None if it can match several."""
        if self.resource_name is None or self.principal is None or self.host is None:
            return None
        if self.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
            return None
        if ResourceType.ANY is self.resource_type or Operation.ANY is self.operation:
            return None
        if self.permission is Permission.ANY:
            return None
        return Acl(
            self.resource_type, self.resource_name, self.pattern_type,
            self.principal, self.host, self.operation, self.permission,
        )  # fmt: skip

    def matches(self, acl: Acl) -> bool:
        """Returns whether the filter selects an ACL."""
        return (
            (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
            and self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_pattern(acl)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        wanted, name = self.pattern_type, self.resource_name
        if wanted not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if name is None or name == acl.resource_name:
            return True
        if wanted is not PatternType.MATCH:
            return False
        if acl.pattern_type is PatternType.LITERAL:
            return acl.resource_name == WILDCARD
        return name.startswith(acl.resource_name)


def fault_of_acl(acl: Acl) -> str | None:
    """Returns why an ACL cannot be created, in Kafka's words where Kafka has some; None if it can be.

    Kafka accepts a principal without a type and fails when it compares it.

    Source: Apache Kafka, AclApis.scala `handleCreateAcls`, AclControlManager.java `validateNewAcl`.
    """
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.resource_name:
        return "Invalid empty resource name"
    if acl.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        return f"Invalid resourceType {acl.resource_type.name}"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {acl.pattern_type.name}"
    if acl.operation in (Operation.UNKNOWN, Operation.ANY):
        return f"Invalid operation {acl.operation.name}"
    if acl.permission not in (Permission.DENY, Permission.ALLOW):
        return f"Invalid permissionType {acl.permission.name}"
    return _fault_of_principal(acl.principal)


def _fault_of_principal(principal: str) -> str | None:
    kind, colon, name = principal.partition(":")
    if kind and colon and name:
        return None
    return f"expected a string in format principalType:principalName but got {principal}"


def fault_of_filter(wanted: AclFilter) -> str | None:
    """Returns why a filter is invalid, in Kafka's words; None if it is valid.

    Source: Apache Kafka, AclControlManager.java `validateFilter`.
    """
    if not wanted.resource_type or not wanted.pattern_type:
        return "Unknown patternFilter."
    if not wanted.operation or not wanted.permission:
        return "Unknown entryFilter."
    return None
