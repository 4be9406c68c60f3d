"""Whom the options of `kompakt quotas` name: users, client ids, addresses, and the defaults of these.

--of-user alice --of-client-id app   {user=alice, client-id=app}
--default user                       each user without an own quota
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cli.base.command_end import EXIT_USAGE, CommandFailed

TYPES = ("user", "client-id", "ip")

Entity = Mapping[str, str | None]
"""Names by type; None is the default of the type."""


def entity_of(
    *, user: str | None, client_id: str | None, ip: str | None, defaults: Sequence[str]
) -> Entity:
    """Returns the entity that the options name; empty if they name none.

    Raises:
        CommandFailed: a default of an unknown type, or a name and a default of the same type.
    """
    named = {"user": user, "client-id": client_id, "ip": ip}
    entity: dict[str, str | None] = {
        type_: name for type_, name in named.items() if name is not None
    }
    for type_ in defaults:
        if type_ not in TYPES:
            raise CommandFailed(EXIT_USAGE, f"--default {type_}: write {', '.join(TYPES)}")
        if type_ in entity:
            raise CommandFailed(EXIT_USAGE, f"give either --of-{type_} or --default {type_}")
        entity[type_] = None
    return entity


def entity_text(entity: Entity) -> str:
    """Returns an entity as people read it: `user alice, default client-id`."""
    ordered = [type_ for type_ in TYPES if type_ in entity]
    parts = (
        f"default {type_}" if entity[type_] is None else f"{type_} {entity[type_]}"
        for type_ in ordered
    )
    return ", ".join(parts)
