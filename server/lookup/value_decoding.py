"""Decodes the values and keys of an answer that name a schema of the registry (docs/design/schemas.md).

The work is done by two executors:

    which schemas -> those that are not here, from the registry  -> the values, in the decoding process
                     `registry`, four threads                       `decoding`, one thread
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from cleaner.rules.text import size_text
from schemas.decoding_process import DecodingProcess
from schemas.outcomes import TOO_LARGE, Decoded, Outcome, Undecoded
from schemas.registry import Found, Registry
from schemas.schema import Schema
from schemas.wire_header import schema_id_of
from server.lookup.lookup_json import Decodings
from server.runtime.executors import Executor
from storage.threads import loop_thread

DECODED_BYTES_MAX = 4 << 20
"""All that is decoded for one answer; the rest of it stays as it is."""
VALUES_AT_ONCE = 32
"""So many are decoded before the values of another request."""


@loop_thread
class ValueDecoding:
    """Decodes values for requests."""

    __slots__ = ("_decoding", "_fetching", "_process", "_registry")

    def __init__(
        self,
        registry: Registry,
        process: DecodingProcess,
        *,
        fetching: Executor,
        decoding: Executor,
    ) -> None:
        """
        Args:
            fetching: the threads that wait for the registry.
            decoding: the thread that talks to the process.
        """
        self._registry = registry
        self._process = process
        self._fetching = fetching
        self._decoding = decoding

    def unknown(self, ids: Iterable[int]) -> set[int]:
        """Returns which schemas are not here, and are not known to be unavailable."""
        return {each for each in ids if self._registry.known(each) is None}

    async def fetch(self, ids: Iterable[int]) -> Mapping[int, Found]:
        """Returns schemas, or why they cannot be had. Waits for the registry where it has to."""
        found = {each: self._registry.known(each) for each in ids}
        missing = [each for each, known in found.items() if known is None]
        fetched = await asyncio.gather(
            *(self._fetching.run(self._registry.schema, each) for each in missing)
        )
        known = {each: schema for each, schema in found.items() if schema is not None}
        return known | dict(zip(missing, fetched, strict=True))

    async def decodings(self, data: Iterable[bytes]) -> Decodings:
        """Returns what the values and keys are that name a schema, or why they are not decoded."""
        ids = ids_in(data)
        schemas = await self.fetch(set(ids.values()))
        outcomes: dict[bytes, Outcome] = {}
        wanted: list[tuple[Schema, bytes]] = []
        for each, schema_id in ids.items():
            schema = schemas[schema_id]
            if isinstance(schema, Undecoded):
                outcomes[each] = schema
            else:
                wanted.append((schema, each))
        room = DECODED_BYTES_MAX
        for at in range(0, len(wanted), VALUES_AT_ONCE):
            some = wanted[at : at + VALUES_AT_ONCE]
            found = await self._decoding.run(_decode, self._process, some, room)
            outcomes |= found
            room -= sum(len(each.json) for each in found.values() if isinstance(each, Decoded))
        return outcomes

    async def close(self) -> None:
        """End the process."""
        await self._decoding.run(self._process.close)


class RequestDecoding:
    """The decoding of one request, which reads its records again once it has their schemas.

    So nothing large waits for a slow registry, and no other request waits behind it.
    """

    __slots__ = ("_asked", "_decoding")

    def __init__(self, decoding: ValueDecoding | None) -> None:
        """
        Args:
            decoding: None if nothing is decoded.
        """
        self._decoding = decoding
        self._asked = set[int]()
        """What the registry was asked for. It is not asked twice for one request."""

    def missing_schemas(self, data: Iterable[bytes]) -> set[int]:
        """Returns which schemas that values name have to be fetched first."""
        if self._decoding is None:
            return set()
        return self._decoding.unknown(ids_in(data).values()) - self._asked

    async def fetch(self, ids: set[int]) -> None:
        """Fetch schemas, or learn why they cannot be had."""
        assert self._decoding is not None, "without a registry none is missing"
        await self._decoding.fetch(ids)
        self._asked |= ids

    async def of(self, data: Iterable[bytes]) -> Decodings:
        """Returns what the values and keys are that name a schema, or why they are not decoded."""
        return {} if self._decoding is None else await self._decoding.decodings(data)


def ids_in(data: Iterable[bytes]) -> dict[bytes, int]:
    """Returns the schemas that values name, by those values."""
    return {each: found for each in data if (found := schema_id_of(each)) is not None}


def _decode(
    process: DecodingProcess, values: Iterable[tuple[Schema, bytes]], room: int
) -> dict[bytes, Outcome]:
    """Returns what the values are, as long as they fit into so many bytes of JSON."""
    found: dict[bytes, Outcome] = {}
    for schema, data in values:
        outcome = process.decode(schema, data) if room > 0 else _no_room(schema.id)
        if isinstance(outcome, Decoded):
            room -= len(outcome.json)
            if room < 0:
                outcome = _no_room(schema.id)
        found[data] = outcome
    return found


def _no_room(schema_id: int) -> Undecoded:
    most = size_text(DECODED_BYTES_MAX)
    return Undecoded(
        schema_id=schema_id,
        code=TOO_LARGE,
        reason=f"the decoded values of the answer take more than {most}: ask for fewer at once",
    )
