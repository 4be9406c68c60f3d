"""A stream has the last value of each key, says when it has them all, and then has each change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from protocol.records.record_batch import Codec, Record, build_batch
from server.lookup import change_routes
from server.lookup.change_events import events_of_records, id_line, positions_of, records_of_batch
from tests.harness.served_broker import NOW_MS, ServedBroker, serving_broker
from tests.harness.served_transactions import ServedTransactions

TOPIC = "users"

Events = list[tuple[str, dict[str, Any]]]


class Stream:
    """One stream of events, as a client reads it."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.last_id = ""

    async def next(self) -> tuple[str, dict[str, Any]]:
        """Returns the next event, and remembers the last id; ("", {}) at the end."""
        name, data = "", ""
        while True:
            async with asyncio.timeout(20):
                line = (await self._response.content.readline()).decode()
            if not line:
                return "", {}
            field, _, value = line.rstrip("\n").partition(": ")
            if field == "id":
                self.last_id = value
            elif field == "event":
                name = value
            elif field == "data":
                data = value
            elif not line.strip() and name:
                return name, json.loads(data)

    async def until(self, name: str) -> Events:
        """Returns the events up to one with this name."""
        found: Events = []
        while not found or found[-1][0] != name:
            found.append(await self.next())
            assert found[-1][0], f"the stream ended after {found}"
        return found


class Site:
    """A broker with a compacted topic, and a client of its HTTP endpoint."""

    def __init__(self, served: ServedBroker, session: aiohttp.ClientSession) -> None:
        self.served = served
        self._session = session

    async def put(
        self, *pairs: tuple[bytes, bytes | None], partition: int = 0, codec: Codec = Codec.NONE
    ) -> None:
        records = [
            Record(offset=number, timestamp=NOW_MS, key=key, value=value)
            for number, (key, value) in enumerate(pairs)
        ]
        await self.served.produce(TOPIC, build_batch(records, codec=codec), partition)

    @asynccontextmanager
    async def stream(
        self, query: str = "", topic: str = TOPIC, last_id: str | None = None
    ) -> AsyncIterator[Stream]:
        async with self.answer(query, topic, last_id) as response:
            assert response.status == 200, await response.text()
            assert response.headers["Content-Type"] == "text/event-stream"
            yield Stream(response)

    @asynccontextmanager
    async def answer(
        self, query: str = "", topic: str = TOPIC, last_id: str | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        url = f"http://127.0.0.1:{self.served.broker.http_port}/v1/topics/{topic}/changes{query}"
        headers = {} if last_id is None else {"Last-Event-ID": last_id}
        async with self._session.get(url, headers=headers) as response:
            yield response


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with (
        serving_broker(tmp_path, http_listener="127.0.0.1:0") as served,
        aiohttp.ClientSession() as session,
    ):
        await served.create(TOPIC, 2, cleanup_policy="compact")
        yield Site(served, session)


def values(events: Events) -> list[tuple[str, str | None]]:
    """Keys and values of the events about records; None is a deletion."""
    return [(data["key"], data.get("value")) for name, data in events if name != "live"]


async def test_a_stream_has_each_last_value_says_that_it_is_live_and_then_has_each_change(
    site: Site,
) -> None:
    await site.put((b"ada", b"old"), (b"bob", b"1"))
    await site.put((b"ada", b"new"))
    await site.put((b"eve", b"1"), partition=1)

    async with site.stream() as stream:
        events = await stream.until("live")
        assert values(events) == [("bob", "1"), ("ada", "new"), ("eve", "1")]
        assert events[-1][1] == {"positions": {"0": 3, "1": 1}}

        await site.put((b"bob", None), (b"ada", b"newer"))
        assert values([await stream.next(), await stream.next()]) == [
            ("bob", None),
            ("ada", "newer"),
        ]


async def test_an_event_has_what_a_get_has(site: Site) -> None:
    await site.put((b"\xff", b"\xfe"))

    async with site.stream("?follow=false") as stream:
        name, data = await stream.next()
    assert (name, data) == (
        "value",
        {
            "key": "/w==",
            "key_encoding": "base64",
            "partition": 0,
            "offset": 0,
            "timestamp_ms": NOW_MS,
            "value": "/g==",
            "value_encoding": "base64",
            "headers": [],
        },
    )


async def test_a_stream_that_does_not_follow_ends_once_it_is_live(site: Site) -> None:
    await site.put((b"ada", b"1"))

    async with site.stream("?follow=false&partition=0") as stream:
        assert [name for name, _ in await stream.until("live")] == ["value", "live"]
        assert await stream.next() == ("", {})
    async with site.stream("?follow=false&partition=1") as stream:
        assert [name for name, _ in await stream.until("live")] == ["live"]


async def test_a_client_that_comes_back_with_the_last_id_gets_what_has_changed(site: Site) -> None:
    await site.put((b"ada", b"1"), (b"bob", b"1"))
    async with site.stream("?follow=false") as stream:
        await stream.until("live")
        assert await stream.next() == ("", {})
    assert stream.last_id == "0:2,1:0"
    await site.put((b"bob", b"2"))
    await site.put((b"eve", b"1"), partition=1)

    async with site.stream("?follow=false", last_id=stream.last_id) as stream:
        assert values(await stream.until("live")) == [("bob", "2"), ("eve", "1")]


async def test_a_stream_from_now_has_changes_only(site: Site) -> None:
    await site.put((b"ada", b"1"))

    async with site.stream("?from=now") as stream:
        assert [name for name, _ in await stream.until("live")] == ["live"]
        await site.put((b"ada", b"2"))
        assert values([await stream.next()]) == [("ada", "2")]


async def test_records_of_a_transaction_come_with_its_commit_and_those_of_an_aborted_one_never(
    site: Site,
) -> None:
    transactions = ServedTransactions(site.served, "till", TOPIC)
    async with site.stream("?partition=0") as stream:
        await stream.until("live")
        await transactions.begin()
        await transactions.send((b"ada", b"aborted"))
        await transactions.end(is_commit=False)
        await transactions.begin()
        await transactions.send((b"ada", b"committed"))
        await transactions.end(is_commit=True)
        assert values([await stream.next()]) == [("ada", "committed")]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_large_and_compressed_batches_are_made_into_events_in_a_thread(
    site: Site, codec: Codec
) -> None:
    pairs = [(b"key-%d" % number, b"v" * 500) for number in range(300)]
    await site.put(*pairs, codec=codec)

    async with site.stream("?follow=false") as stream:
        events = await stream.until("live")
    assert values(events) == [(key.decode(), value.decode()) for key, value in pairs]


async def test_what_is_sent_as_it_is_stored_has_the_same_events(site: Site) -> None:
    for number in range(100):
        await site.put((b"key-%d" % number, b"1"))
    async with site.stream("?follow=false") as stream:
        first = await stream.until("live")
    async with site.stream("?follow=false") as stream:
        assert await stream.until("live") == first
    assert len(first) == 101
    assert site.served.broker.view_reads.facts().stored_total


async def test_a_deleted_topic_ends_its_streams_with_an_error(site: Site) -> None:
    topic = site.served.broker.topics.get(TOPIC)
    assert topic is not None
    async with site.stream() as stream:
        await stream.until("live")
        assert await site.served.broker.topics.delete(topic) is None
        name, data = await stream.next()
        assert (name, data["code"]) == ("error", "unknown_topic")
        assert await stream.next() == ("", {})


async def test_a_silent_stream_is_kept_open_by_comments(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_routes, "STILL_THERE_SECONDS", 0.01)
    async with site.answer() as response:
        async with asyncio.timeout(20):
            while await response.content.readline() != b":\n":
                pass


async def test_a_stream_that_a_client_has_left_ends(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_routes, "STILL_THERE_SECONDS", 0.01)
    waiters = site.served.broker.fetch_waiters
    async with site.stream() as stream:
        await stream.until("live")
        assert waiters.parked_count == 1
    async with asyncio.timeout(20):
        while waiters.parked_count:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_more_streams_than_allowed_are_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_routes, "STREAMS_MAX", 1)
    async with site.stream() as stream:
        await stream.until("live")
        async with site.answer() as response:
            assert response.status == 503
            assert (await response.json())["code"] == "too_many_streams"


@pytest.mark.parametrize(
    ("query", "last_id", "status", "sentence"),
    [
        ("?partition=2", None, 404, "has no partition 2: it has 2, counted from 0"),
        ("?partition=x", None, 400, "partition is a number, not 'x'"),
        ("?from=then", None, 400, "from is start or now, not 'then'"),
        ("?follow=yes", None, 400, "follow is true or false, not 'yes'"),
        ("?form=now", None, 400, "there is no parameter 'form': there are follow, from, partition"),
        ("", "0-7", 400, "Last-Event-ID is the id of an event of this stream, not '0-7'"),
        ("?partition=0", "1:0", 400, "names partitions that are not asked for"),
        ("?partition=0", "0:7", 409, "has no offset 7: begin from the start"),
    ],
)
async def test_a_wrong_request_is_refused_with_a_sentence(
    site: Site, query: str, last_id: str | None, status: int, sentence: str
) -> None:
    await site.put((b"ada", b"1"))
    async with site.answer(query, last_id=last_id) as response:
        assert response.status == status
        assert sentence in (await response.json())["error"]


async def test_topics_without_last_values_are_refused(site: Site) -> None:
    await site.served.create("plain")
    for topic, code in (("plain", "not_compacted"), ("nothing", "unknown_topic")):
        async with site.answer(topic=topic) as response:
            assert (await response.json())["code"] == code


async def test_many_partitions_are_refused_unless_one_is_named(site: Site) -> None:
    await site.served.create("wide", 65, cleanup_policy="compact")
    async with site.answer(topic="wide") as response:
        assert "has 65 partitions: name one" in (await response.json())["error"]
    async with site.stream("?partition=64&follow=false", topic="wide") as stream:
        assert await stream.next() == ("live", {"positions": {"64": 0}})


def test_an_id_leads_back_to_its_positions() -> None:
    positions = {3: 7, 0: 9}
    text = id_line(positions).decode().removeprefix("id: ").strip()
    assert positions_of(text, [0, 3]) == positions


def test_records_below_the_start_have_no_event() -> None:
    records = [Record(offset=at, timestamp=0, key=b"k%d" % at, value=b"") for at in range(3)]
    data = bytes(build_batch(records))
    last = records_of_batch(data, 0, 2, decompressed_bytes_max=1 << 20)
    said = events_of_records(0, last, {})
    assert said.count(b"event: value") == 1
    assert b'"key":"k2"' in said
