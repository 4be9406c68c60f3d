"""Which ACLs of a source's topics are created and removed here: pure.

    owned    ACLs that the link has created. One that was here before is the operator's and stays.

    wanted of the source    here, owned      here, not owned    not here
    yes                     nothing          nothing            create, own
    no                      delete           nothing            disown

An owned ACL that concerns no mirror, because its topics were promoted, is disowned and stays.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from server.security.acls import Acl, PatternType, ResourceType


@dataclass(frozen=True, slots=True, kw_only=True)
class AclChanges:
    """What to do, in this order."""

    create: frozenset[Acl]
    delete: frozenset[Acl]
    owned: frozenset[Acl]
    """What the link owns afterwards."""


def acl_changes(
    source: Iterable[Acl],
    topics: Collection[str],
    *,
    owned: frozenset[Acl],
    here: Iterable[Acl],
) -> AclChanges:
    """Returns how the ACLs here become those of the source.

    Args:
        source: the ACLs of the source's topics.
        topics: the mirrors of the link.
        here: the ACLs that this broker has.
    """
    concerns, present = concerned_by(topics), frozenset(here)
    wanted = frozenset(filter(concerns, source))
    create = wanted - present
    delete = frozenset(filter(concerns, owned - wanted)) & present
    return AclChanges(create=create, delete=delete, owned=(owned & wanted & present) | create)


def concerned_by(topics: Collection[str]) -> Callable[[Acl], bool]:
    """Returns a function that says whether an ACL names one of these topics, or a prefix of one. Those
    for every topic (`*`) are the operator's on each side."""
    names, in_order = frozenset(topics), sorted(topics)

    def concerns(acl: Acl) -> bool:
        if acl.resource_type is not ResourceType.TOPIC:
            return False
        if acl.pattern_type is PatternType.PREFIXED:
            first = bisect_left(in_order, acl.resource_name)
            return first < len(in_order) and in_order[first].startswith(acl.resource_name)
        return acl.pattern_type is PatternType.LITERAL and acl.resource_name in names

    return concerns
