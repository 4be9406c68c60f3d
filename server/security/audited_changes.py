"""What each administrative request has changed, for the audit log.

`AUDITED` has a row for each API that changes the cluster's metadata or deletes data; `tests` hold the
other APIs against a list, so that a new one needs a decision. A row takes names and error codes from
request and answer, and never a value: values may be secret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from protocol.wire.api_keys import APIS, ApiKey
from server.config.rows import ResourceType
from server.security.acls import Operation, PatternType, Permission
from server.security.acls import ResourceType as AclResource

RESULTS_MAX = 100
"""A line lists so many results. Readers look at few elements more, because requests may have 100,000."""

PARTS_MAX = 3
"""A user, a client id, an address: the parts that an entity of a quota may have."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A resource that a request named, and what the request did to it."""

    resource: str
    error_code: int
    properties: Iterable[str] = ()
    """Names of the properties that the request sets."""


@dataclass(frozen=True, slots=True)
class Audited:
    """An API whose requests are logged."""

    api: str
    changes_of: Callable[[Any, Any], Iterable[Changed]]
    """Takes the request and its answer."""


def _topics(answers: str) -> Callable[[Any, Any], Iterable[Changed]]:
    """Returns a reader of an answer whose field `answers` has a name and an error for each topic."""

    def changes(_: Any, response: Any) -> Iterator[Changed]:
        for each in _first(getattr(response, answers)):
            yield Changed(f"Topic:{each.name or each.topic_id}", each.error_code)

    return changes


def _partitions(answers: str, topic: str, partitions: str, number: str) -> Callable[..., Any]:
    """Returns a reader of an answer with an error for each partition of each topic."""

    def changes(_: Any, response: Any) -> Iterator[Changed]:
        for each in _first(getattr(response, answers)):
            for partition in _first(getattr(each, partitions)):
                name = f"Partition:{getattr(each, topic)}-{getattr(partition, number)}"
                yield Changed(name, partition.error_code)

    return changes


def _configs(request: Any, response: Any) -> Iterator[Changed]:
    # Every resource of the request has its answer at the same place.
    for asked, each in zip(_first(request.resources), _first(response.responses), strict=False):
        name = f"{_resource_type(asked.resource_type)}:{asked.resource_name}"
        yield Changed(name, each.error_code, [config.name for config in _first(asked.configs)])


def _quotas(request: Any, response: Any) -> Iterator[Changed]:
    # An entity of a refused request may have any number of parts.
    entries = (each for each in _first(request.entries) if len(each.entity) <= PARTS_MAX)
    asked = {each.entity: each.ops for each in entries}
    for each in _first(response.entries):
        parts = each.entity[:PARTS_MAX]
        names = (f"{part.entity_type}={part.entity_name or '<default>'}" for part in parts)
        keys = [op.key for op in _first(asked.get(parts, ()))]
        yield Changed(f"Quota:{','.join(names)}", each.error_code, keys)


def _groups(_: Any, response: Any) -> Iterator[Changed]:
    for each in _first(response.results):
        yield Changed(f"Group:{each.group_id}", each.error_code)


def _offsets(request: Any, response: Any) -> Iterator[Changed]:
    group = f"Group:{request.group_id}"
    if response.error_code:
        yield Changed(group, response.error_code)
    for topic in _first(response.topics):
        for partition in _first(topic.partitions):
            where = f"{group}, {topic.name}-{partition.partition_index}"
            yield Changed(where, partition.error_code)


def _new_acls(request: Any, response: Any) -> Iterator[Changed]:
    for asked, each in zip(_first(request.creations), _first(response.results), strict=False):
        pattern_type = PatternType(asked.resource_pattern_type)
        yield Changed(_acl(asked, pattern_type), each.error_code)


def _deleted_acls(_: Any, response: Any) -> Iterator[Changed]:
    for result in _first(response.filter_results):
        if result.error_code:
            yield Changed("Acls", result.error_code)
        for acl in _first(result.matching_acls):
            yield Changed(_acl(acl, PatternType(acl.pattern_type)), acl.error_code)


def _acl(acl: Any, pattern_type: PatternType) -> str:
    """Returns an ACL as text, such as `Topic:PREFIXED:orders- ALLOW READ User:alice from *`."""
    pattern = f"{AclResource(acl.resource_type).title}:{pattern_type.name}:{acl.resource_name}"
    permission = f"{Permission(acl.permission_type).name} {Operation(acl.operation).name}"
    return f"{pattern} {permission} {acl.principal} from {acl.host}"


def _features(_: Any, response: Any) -> Iterator[Changed]:
    if response.error_code:
        yield Changed("Cluster", response.error_code)
    for each in _first(response.results):
        yield Changed(f"Feature:{each.feature}", each.error_code)


def _markers(_: Any, response: Any) -> Iterator[Changed]:
    for marker in _first(response.markers):
        for topic in _first(marker.topics):
            for partition in _first(topic.partitions):
                name = f"{topic.name}-{partition.partition_index}"
                what = f"Partition:{name}, producer {marker.producer_id}"
                yield Changed(what, partition.error_code)


def _credentials(_: Any, response: Any) -> Iterator[Changed]:
    for each in _first(response.results):
        yield Changed(f"User:{each.user}", each.error_code)


def _first(elements: Iterable[Any]) -> Iterator[Any]:
    return islice(elements, RESULTS_MAX + 1)


def _resource_type(number: int) -> str:
    known = {each.value: each.name.capitalize() for each in ResourceType}
    return known.get(number, str(number))


_READERS: dict[ApiKey, Callable[[Any, Any], Iterable[Changed]]] = {
    ApiKey.CREATE_TOPICS: _topics("topics"),
    ApiKey.DELETE_TOPICS: _topics("responses"),
    ApiKey.CREATE_PARTITIONS: _topics("results"),
    ApiKey.ALTER_CONFIGS: _configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs,
    ApiKey.DELETE_RECORDS: _partitions("topics", "name", "partitions", "partition_index"),
    ApiKey.ALTER_CLIENT_QUOTAS: _quotas,
    ApiKey.DELETE_GROUPS: _groups,
    ApiKey.OFFSET_DELETE: _offsets,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _partitions(
        "results", "topic_name", "partitions", "partition_index"
    ),
    ApiKey.CREATE_ACLS: _new_acls,
    ApiKey.DELETE_ACLS: _deleted_acls,
    ApiKey.UPDATE_FEATURES: _features,
    ApiKey.WRITE_TXN_MARKERS: _markers,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _credentials,
}
AUDITED = {key.value: Audited(APIS[key].name, reader) for key, reader in _READERS.items()}
"""The rows by API key."""
