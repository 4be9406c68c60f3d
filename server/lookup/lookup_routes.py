"""The HTTP routes that return the last values of keys (docs/design/get.md).

GET    /v1/topics/<topic>/keys/<key>     the last value of a key; ?key_encoding=base64url, ?partition=N,
                                         ?min_offset=N, ?wait=S, ?value_format=raw, ?snapshot=ID,
                                         If-None-Match
POST   /v1/topics/<topic>/keys:batch     those of up to 1,000 keys: {"keys": [...], "key_encoding": ...,
                                         "partition": N, "value_format": "raw", "snapshot": ID}

Both need Read on the topic. A topic that the client may not read is answered like one that does not
exist (`server/admin/http_access.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
from aiohttp import web

from cleaner.lookup.last_records import Room, TooLarge
from cleaner.rules.text import size_text
from protocol.wire.errors import ProtocolError
from server.admin.compaction_answers import refusals_as_json
from server.admin.http_rules import KEY, KEYS_BATCH
from server.admin.refusals import CompactionRefused, serving
from server.durability.fetch_waiters import FetchWaiters
from server.lookup.asked_topic import (
    AskedTopic,
    asked_in_snapshot,
    asked_topic,
    check_exists,
    check_partition,
    logs_of,
)
from server.lookup.key_changes import KeyChanges
from server.lookup.key_lookups import KeyLookups, LastRecords
from server.lookup.key_tables import LookupEnded, TooManyKeys
from server.lookup.lookup_json import Decodings, Hit, Json, answer_json, etag_of, is_miss
from server.lookup.lookup_request import (
    STABLE_SECONDS,
    UTF_8,
    Query,
    batch_of,
    etags_of,
    key_of,
    query_of,
)
from server.lookup.partitioner import partition_of
from server.lookup.value_decoding import RequestDecoding, ValueDecoding
from server.runtime.executors import Executor
from server.runtime.turns import Turns
from server.topics.topic import Topic
from server.topics.topics import Topics
from server.views.snapshot_topics import SnapshotTopics
from storage.files.errors import CorruptLog
from storage.log.log import PartitionLog

ANSWER_BYTES_MAX = 4 << 20
"""Keys, values and headers of an answer; a single record may be larger."""

ANSWERS_MAX = 32
"""So many answers are made and sent at once; other requests wait for their turn."""

ANSWERS_AT_ONCE = 5
"""So many answers of a batch are made in one turn of the loop."""

SMALL_BYTES_MAX = 4 << 10
"""Smaller answers do not count for ANSWERS_MAX while they are sent: each connection has one at most."""

LOOP_BYTES_MAX = 64 << 10
"""Larger answers are encoded in a thread."""

PROPERTY = "key.lookup.bytes.max"


class LookupRoutes:
    """Answers the requests above."""

    def __init__(
        self,
        topics: Callable[[], Topics | str],
        snapshots: Callable[[], SnapshotTopics],
        lookups: KeyLookups,
        waiters: FetchWaiters,
        turns: Turns,
        *,
        encoding: Executor,
        decoding: ValueDecoding | None,
    ) -> None:
        """
        Args:
            topics: returns a sentence while the broker does not serve.
            snapshots: returns the topics in snapshots of a broker that serves.
            encoding: the thread that encodes large answers.
            decoding: decodes values that name a schema; None without a registry.
        """
        self._topics = topics
        self._snapshots = snapshots
        self._lookups = lookups
        self._waiters = waiters
        self._turns = turns
        self._encoding = encoding
        self._decoding = decoding
        self._answering = asyncio.Semaphore(ANSWERS_MAX)

    def routes(self) -> list[web.RouteDef]:
        """Returns the routes to add to an application's router."""
        return [
            web.get(KEY, refusals_as_json(self._get)),
            web.post(KEYS_BATCH, refusals_as_json(self._batch)),
        ]

    async def _get(self, request: web.Request) -> web.StreamResponse:
        names, parameters = request.match_info, request.query
        key = key_of(names["key"], parameters.get("key_encoding", UTF_8))
        query = query_of(parameters)
        known = etags_of(request.headers.get("If-None-Match"))
        topic = await self._topic(names["topic"], query.snapshot)
        places = _places_of(topic, [key], query.partition)
        logs = _logs_of(topic, places)
        with KeyChanges(self._waiters, list(logs.values()), query.wait_seconds or 0.0) as changes:
            await self._until_stable(logs, query)
            decoding = self._decoding_for(is_raw=query.is_raw)
            while True:
                async with self._answering:
                    (hits,) = await self._hits(logs, [key], places)
                    etag = etag_of(hits)
                    is_another = not ({etag, "*"} & known)
                    data = [key, *_values_of(hits)] if is_another else []
                    missing = decoding.missing_schemas(data)
                    if is_another and not missing:
                        answer = answer_json(topic.name, key, hits, await decoding.of(data))
                        return await self._send(request, answer, etag)
                    # Nothing large waits outside.
                    hits, data = [], []
                if missing:
                    await decoding.fetch(missing)
                elif not await changes.next():
                    return web.Response(status=304, headers={"ETag": etag})
                if isinstance(topic, Topic):
                    check_exists(serving(self._topics()), topic)

    async def _batch(self, request: web.Request) -> web.StreamResponse:
        try:
            batch = batch_of(await request.read())
        except web.HTTPRequestEntityTooLarge as error:
            raise CompactionRefused(
                413, "the keys take more than 1 MiB: ask for fewer keys at once", code="too_large"
            ) from error
        await self._turns.next(is_new=True)
        topic = await self._topic(request.match_info["topic"], batch.snapshot)
        places = _places_of(topic, batch.keys, batch.partition)
        logs = _logs_of(topic, places)
        decoding = self._decoding_for(is_raw=batch.is_raw)
        while True:
            async with self._answering:
                found = await self._hits(logs, batch.keys, places)
                data = [*batch.keys, *(value for hits in found for value in _values_of(hits))]
                missing = decoding.missing_schemas(data)
                if not missing:
                    decodings = await decoding.of(data)
                    records = await self._answers(topic.name, batch.keys, found, decodings)
                    await self._turns.next(is_new=False)
                    return await self._send(request, {"records": records})
                # Nothing large waits outside.
                found, data = [], []
            await decoding.fetch(missing)

    async def _answers(
        self,
        topic: str,
        keys: Sequence[bytes],
        found: Sequence[Sequence[Hit]],
        decodings: Decodings,
    ) -> list[Json]:
        """Returns the answers about keys, made in several turns of the loop."""
        answers: list[Json] = []
        while len(answers) < len(keys):
            await self._turns.next(is_new=False)
            some = slice(len(answers), len(answers) + ANSWERS_AT_ONCE)
            answers += [
                answer_json(topic, key, hits, decodings)
                for key, hits in zip(keys[some], found[some], strict=True)
            ]
        return answers

    async def _topic(self, name: str, snapshot: str | None) -> AskedTopic:
        """Returns the topic of a request. Raises CompactionRefused."""
        topics = serving(self._topics())
        if snapshot is None:
            return asked_topic(topics, name)
        return await asked_in_snapshot(self._snapshots(), name, snapshot)

    async def _until_stable(self, logs: Mapping[int, PartitionLog], query: Query) -> None:
        """Wait until the partition's last stable offset is above `min_offset`."""
        least = query.min_offset
        if least is None:
            return
        (log,) = logs.values()
        seconds = STABLE_SECONDS if query.wait_seconds is None else query.wait_seconds
        with KeyChanges(self._waiters, [log], seconds) as changes:
            while log.last_stable_offset <= least:
                if not await changes.next():
                    raise CompactionRefused(
                        503,
                        f"offset {least} is not stable yet: the last stable offset of"
                        f" {log.topic_partition} is {log.last_stable_offset}",
                        code="not_stable_yet",
                    )

    async def _hits(
        self,
        logs: Mapping[int, PartitionLog],
        keys: Sequence[bytes],
        places: Sequence[int | None],
    ) -> list[list[Hit]]:
        """Returns for each key the partitions that have a record of it, with that record.

        Args:
            places: the partition of each key; None: any of `logs`.
        """
        hits: list[list[Hit]] = [[] for _ in keys]
        room = Room(ANSWER_BYTES_MAX)
        for number, log in logs.items():
            here = [at for at, place in enumerate(places) if place is None or place == number]
            found = await self._found(log, [keys[at] for at in here], room)
            for at, record in zip(here, found, strict=True):
                if record is not None:
                    hits[at].append((number, record))
        return hits

    async def _found(self, log: PartitionLog, keys: Sequence[bytes], room: Room) -> LastRecords:
        """Look keys up in one log. Raises CompactionRefused."""
        try:
            return await self._lookups.find(log, keys, room)
        except TooManyKeys as error:
            raise CompactionRefused(
                507,
                f"the keys of {log.topic_partition} need a table of {size_text(error.bytes_needed)},"
                f" and all tables together may take {size_text(error.bytes_max)}: raise {PROPERTY}",
                code="too_many_keys",
            ) from error
        except TooLarge as error:
            raise CompactionRefused(
                413,
                f"the values take more than {size_text(ANSWER_BYTES_MAX)}: ask for fewer keys at once",
                code="too_large",
            ) from error
        except (ProtocolError, CorruptLog) as error:
            raise CompactionRefused(
                503,
                f"{log.topic_partition} has a damaged segment, which may have the last value of any"
                f" key: {error}",
                code="damaged",
            ) from error
        except LookupEnded as error:
            raise CompactionRefused(503, f"{log.topic_partition}: {error}") from error

    def _decoding_for(self, *, is_raw: bool) -> RequestDecoding:
        return RequestDecoding(None if is_raw else self._decoding)

    async def _send(
        self, request: web.Request, answer: Json, etag: str | None = None
    ) -> web.StreamResponse:
        """Send an answer that is not small, and return when the client has it, or a bounded rest is on
        its way."""
        body = await self._encoded(answer)
        response = web.Response(
            body=body,
            status=404 if is_miss(answer) else 200,
            content_type="application/json",
            headers=None if etag is None else {"ETag": etag},
        )
        if len(body) <= SMALL_BYTES_MAX:
            return response  # Then it is sent.
        await response.prepare(request)
        await response.write_eof()
        return response

    async def _encoded(self, answer: Json) -> bytes:
        if _size_of(answer) > LOOP_BYTES_MAX:
            return await self._encoding.run(_encode, answer)
        return _encode(answer)


def _encode(answer: Json) -> bytes:
    return msgspec.json.encode(answer)


def _values_of(hits: Sequence[Hit]) -> list[bytes]:
    return [record.value for _, record in hits if record.value is not None]


def _size_of(answer: Json) -> int:
    """Returns the size of an answer, roughly."""
    return sum(len(each.get("value", "")) + 200 for each in answer.get("records", [answer]))


def _places_of(topic: AskedTopic, keys: Sequence[bytes], partition: int | None) -> list[int | None]:
    """Returns the partition of each key; None if it may be in any. Raises CompactionRefused."""
    if partition is None:
        count, partitioner = len(topic.partitions), topic.config.view_partitioner
        if count == 1:
            return [0] * len(keys)
        return [partition_of(partitioner, key, count) for key in keys]
    check_partition(topic, partition)
    return [partition] * len(keys)


def _logs_of(topic: AskedTopic, places: Collection[int | None]) -> dict[int, PartitionLog]:
    """Returns the logs that are searched, by their numbers. Raises CompactionRefused."""
    if None in places:
        return logs_of(topic, range(len(topic.partitions)))
    return logs_of(topic, {each for each in places if each is not None})
