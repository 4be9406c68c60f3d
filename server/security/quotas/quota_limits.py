"""The configured values of one quota, and which of them applies to a client.

The most specific entity with a value wins, in this order:

    user and client id      (user, client id), (user, default)
    user                    user
    defaults of both        (default, client id), (default, default)
    default of users        default
    client id               client id, default

An empty client id matches no entity that names client ids, default or not, as in Kafka.

Source: Apache Kafka, ClientQuotaManager.scala, DefaultQuotaCallback.
"""

from __future__ import annotations

from typing import NamedTuple

from server.security.quotas.quota_entity import CLIENT_ID, USER, QuotaEntity

CACHED_CLIENTS_MAX = 10_000
"""Beyond this many clients, the cache of decisions is emptied: clients choose their ids."""


class Client(NamedTuple):
    """Whose usage is counted: the names of a user and a client id; an empty one stands for all."""

    user: str
    client_id: str


class Limit(NamedTuple):
    """A quota that applies to a client."""

    bound: float
    """Units a second."""
    sharer: Client
    """Whose usage counts together: all clients of a user share the quota of the user."""


class QuotaLimits:
    """The values of one quota for users and client ids."""

    __slots__ = ("_by_entity", "_cache")

    def __init__(self) -> None:
        # State
        self._by_entity: dict[tuple[object, ...], float] = {}
        # Derived: decisions for clients.
        self._cache: dict[Client, Limit | None] = {}

    def __len__(self) -> int:
        return len(self._by_entity)

    def set(self, entity: QuotaEntity, bound: float | None) -> None:
        """Set the value of an entity; None removes it."""
        key = entity.parts
        if bound is None:
            self._by_entity.pop(key, None)
        else:
            self._by_entity[key] = bound
        self._cache.clear()

    def find(self, client: Client) -> Limit | None:
        """Returns the quota that applies to a client; None if none does."""
        cache = self._cache
        try:
            return cache[client]
        except KeyError:
            pass
        if len(cache) >= CACHED_CLIENTS_MAX:
            cache.clear()
        limit = cache[client] = self._find(client)
        return limit

    def _find(self, client: Client) -> Limit | None:
        user, client_id = client
        for names, sharer in (
            ((user, client_id), client),
            ((user, None), client),
            ((user,), Client(user, "")),
            ((None, client_id), client),
            ((None, None), client),
            ((None,), Client(user, "")),
        ):
            if len(names) == 1:
                bound = self._by_entity.get(((USER, names[0]),))
            else:
                bound = self._of_pair(names[0], names[1], client_id)
            if bound is not None:
                return Limit(bound, sharer)
        return self._of_client_id(client_id)

    def _of_pair(self, user: str | None, name: str | None, client_id: str) -> float | None:
        return self._by_entity.get(((CLIENT_ID, name), (USER, user))) if client_id else None

    def _of_client_id(self, client_id: str) -> Limit | None:
        if not client_id:
            return None
        for name in (client_id, None):
            bound = self._by_entity.get(((CLIENT_ID, name),))
            if bound is not None:
                return Limit(bound, Client("", client_id))
        return None
