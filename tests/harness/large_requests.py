"""The largest requests that clients may send, generated from the table of APIs, so new APIs are
included.

For each array in a request, at any depth, there is one request with many equal elements that name
existing things, and one whose elements all differ and name nothing that exists.
"""

from __future__ import annotations

import dataclasses
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from protocol.wire.api_keys import Api
from protocol.wire.schema import Kind, Message, NamedField, WireType, fields_of
from tests.harness.messages import MessageGenerator
from tests.harness.raw_client import encode_request

ATTACKED = "attacked"
"""The name of the existing topic, group and transactional id."""

FRAME_BYTES_MAX = 4 << 20
"""Larger frames only take longer: the tests look for work that grows with the number of elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeRequest:
    """One request, ready to send."""

    api: Api
    version: int
    array: str
    """The array that is large, such as `topics.partitions`."""
    kind: str
    """`same` or `distinct` elements."""
    frame: bytes
    """Without the leading size."""


def large_request(
    api: Api, path: tuple[str, ...], kind: str, elements: int, *, version: int | None = None
) -> LargeRequest:
    """Returns the request whose array at `path` has `elements` elements, or as many as fit into a frame
    of `FRAME_BYTES_MAX`; by default in the newest version."""
    version = api.version_max if version is None else version
    seed = f"{api.name} {path} {kind}"
    while True:
        small = _Small(random.Random(seed), version=version, tagged=False)
        message = small.message(api.request_type)
        _enlarge(message, path, elements, kind)
        frame = encode_request(message, version, 1)
        if len(frame) <= FRAME_BYTES_MAX:
            break
        elements = elements * FRAME_BYTES_MAX // (2 * len(frame)) + 1
    return LargeRequest(api=api, version=version, array=".".join(path), kind=kind, frame=frame)


def small_request(api: Api) -> LargeRequest:
    """Returns the smallest request of an API, in the newest version."""
    version = api.version_max
    small = _Small(random.Random(api.name), version=version, tagged=False)
    frame = encode_request(small.message(api.request_type), version, 1)
    return LargeRequest(api=api, version=version, array="", kind="small", frame=frame)


def array_paths(declared: type, version: int) -> Iterator[tuple[str, ...]]:
    """Yields the path of each array in a request: the field names that lead to it."""
    for field in fields_of(declared):
        inner = _struct_of(field.wire.type)
        if not field.wire.exists_in(version):
            continue
        if field.wire.type.kind is Kind.ARRAY:
            yield (field.name,)
        if inner is not None:
            for rest in array_paths(inner, version):
                yield (field.name, *rest)


def _struct_of(wire_type: WireType[Any]) -> type | None:
    if wire_type.kind is Kind.ARRAY:
        assert wire_type.element is not None
        return wire_type.element.struct
    return wire_type.struct


class _Small(MessageGenerator):
    """Generates messages with short values and one element per array, with existing names."""

    def message(self, declared: type[Any]) -> Any:
        values = {
            field.name: self._named(field)
            for field in fields_of(declared)
            if field.wire.exists_in(self.version)
        }
        return declared(**values)

    def _named(self, field: NamedField) -> Any:
        wire = field.wire.type
        settled = SETTLED.get(field.name, ATTACKED)
        if settled is None and not field.wire.is_nullable_in(self.version):
            settled = ATTACKED
        if field.name in SETTLED:
            return settled
        if wire.kind is Kind.STRING:
            return ATTACKED
        if wire.kind is Kind.ARRAY:
            assert wire.element is not None
            if wire.element.kind is Kind.STRING:
                return (ATTACKED,)
            return (self._value(wire.element),)
        return self._value(wire)

    def _value(self, wire_type: WireType[Any]) -> Any:
        match wire_type.kind:
            case Kind.FIXED if wire_type.name == "uuid":
                return uuid.UUID(int=7)
            case Kind.FIXED:
                return type(super()._value(wire_type))(0)
            case Kind.BYTES:
                return b""
            case _:
                return super()._value(wire_type)

    def _size(self) -> int:
        return 1


SETTLED: dict[str, Any] = {
    "acks": 1,
    "transactional_id": None,
    "max_wait_ms": 0,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 10,
    "timeout_ms": 1_000,
    "transaction_timeout_ms": 60_000,
    "validate_only": True,
    "session_id": 0,
    "session_epoch": -1,
    "rebalance_timeout_ms": 1_000,
    "session_timeout_ms": 10_000,
    "replica_id": -1,
    "resource_type": 2,
    "num_partitions": 1,
    "replication_factor": 1,
    "count": 2,
    "member_id": "",
    "group_instance_id": None,
    "instance_id": None,
    "rack_id": None,
    "server_assignor": None,
    "subscribed_topic_regex": None,
    "verify_only": False,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "protocol_type": "consumer",
}
"""Values of fields that let the broker carry out the request and not refuse it at its first field."""


def _enlarge(message: Message, path: tuple[str, ...], elements: int, kind: str) -> None:
    """Repeat the one element of the array at `path`."""
    holder: Any = message
    for name in path[:-1]:
        holder = getattr(holder, name)
        if isinstance(holder, tuple):
            (holder,) = holder
    (element,) = getattr(holder, path[-1])
    many = (element,) * elements
    if kind == "distinct":
        many = tuple(_another(element, number) for number in range(elements))
    object.__setattr__(holder, path[-1], many)


def _another(element: Any, number: int) -> Any:
    """Returns an element that differs from all others in each of its names and numbers."""
    if isinstance(element, bool):
        return element
    if isinstance(element, str):
        return f"{number:x}"
    if isinstance(element, int):
        return number % 128
    if isinstance(element, uuid.UUID):
        return uuid.UUID(int=number + 1)
    if not dataclasses.is_dataclass(element) or isinstance(element, type):
        return element
    changed = {
        field.name: _another(getattr(element, field.name), number)
        for field in dataclasses.fields(element)
        if isinstance(getattr(element, field.name), str | uuid.UUID)
        or (field.name in INDEXES and isinstance(getattr(element, field.name), int))
    }
    return dataclasses.replace(element, **changed)


INDEXES = {"partition", "partition_index", "index"}
