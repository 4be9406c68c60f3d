"""The last values of keys over HTTP, in a whole broker."""

from __future__ import annotations

import asyncio
import io
from base64 import b64encode, urlsafe_b64encode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from protocol.records.record_batch import Codec, Record, build_batch
from server.lookup.key_tables import KeyTables
from server.lookup.lookup_request import KEYS_MAX
from server.lookup.lookup_routes import ANSWER_BYTES_MAX
from storage.files.paths import LOG
from tests.harness.served_broker import ServedBroker, serving_broker

Json = dict[str, Any]
TOPIC = "/v1/topics/users"
NEWER_MS = 2_000


@dataclass
class Users:
    """A broker with a compacted topic of two partitions, and a client of its HTTP endpoint."""

    served: ServedBroker
    session: aiohttp.ClientSession
    etag: str | None = None
    """Of the last answer."""

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Json]:
        url = f"http://127.0.0.1:{self.served.broker.http_port}{path}"
        async with self.session.request(method, url, **options) as response:
            self.etag = response.headers.get("ETag")
            return response.status, await response.json() if response.status != 304 else {}

    async def get(self, key: str, query: str = "", **options: Any) -> tuple[int, Json]:
        return await self.ask("GET", f"{TOPIC}/keys/{key}{query}", **options)

    async def batch(self, *keys: str, **members: Any) -> tuple[int, Json]:
        return await self.ask("POST", f"{TOPIC}/keys:batch", json={"keys": keys, **members})

    async def put(
        self, key: bytes, value: bytes | None, *, partition: int = 0, timestamp: int = 1_000
    ) -> None:
        headers = (("h", b"\xff"), ("n", None))
        record = Record(offset=0, timestamp=timestamp, key=key, value=value, headers=headers)
        await self.served.produce("users", build_batch([record]), partition=partition)


@pytest.fixture
async def users(tmp_path: Path) -> AsyncIterator[Users]:
    async with (
        serving_broker(tmp_path, http_listener="127.0.0.1:0") as served,
        aiohttp.ClientSession() as session,
    ):
        await served.create("users", 2, cleanup_policy="compact")
        yield Users(served, session)


def damage(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


async def tables_of(users: Users) -> KeyTables:
    return await users.served.broker.key_tables()


async def test_get_returns_the_last_value_of_a_key(users: Users) -> None:
    await users.put(b"ada", b"old")
    await users.put(b"ada", b"new", timestamp=NEWER_MS)

    assert await users.get("ada") == (
        200,
        {
            "topic": "users",
            "key": "ada",
            "key_encoding": "utf-8",
            "partition": 0,
            "offset": 1,
            "timestamp_ms": NEWER_MS,
            "value": "new",
            "value_encoding": "utf-8",
            "headers": [
                {"key": "h", "value": b64encode(b"\xff").decode(), "encoding": "base64"},
                {"key": "n", "value": None},
            ],
        },
    )


async def test_a_key_may_have_any_bytes(users: Users) -> None:
    await users.put(b"\xff/\x00", b"\xfe")
    await users.put("a/b ü?".encode(), b"text")
    named = urlsafe_b64encode(b"\xff/\x00").decode().rstrip("=")

    status, answer = await users.get(named, "?key_encoding=base64url")
    assert (status, answer["key_encoding"], answer["value_encoding"]) == (200, "base64", "base64")
    assert answer["value"] == b64encode(b"\xfe").decode()
    assert (await users.get("a%2Fb%20%C3%BC%3F"))[1]["value"] == "text"


@pytest.mark.parametrize("text", ["A", "A.C1", "A%20B", "%C3%BC", "AAA=A"])
async def test_a_key_with_other_characters_than_base64url_is_refused(
    users: Users, text: str
) -> None:
    status, answer = await users.get(text, "?key_encoding=base64url")
    assert (status, answer["code"]) == (400, "bad_request")
    assert "is not base64url" in answer["error"]


async def test_a_miss_says_whether_the_key_was_deleted(users: Users) -> None:
    await users.put(b"ada", b"1", partition=1)
    await users.put(b"ada", None, partition=1, timestamp=NEWER_MS)

    status, answer = await users.get("ada")
    assert (status, answer["code"]) == (404, "deleted")
    assert answer["error"] == "the key was deleted at offset 1 of partition 1"
    assert answer["deleted"] == [{"partition": 1, "offset": 1, "timestamp_ms": NEWER_MS}]
    status, answer = await users.get("bob")
    assert (status, answer["code"]) == (404, "not_found")
    assert "was never written, or its tombstone was cleaned" in answer["error"]


async def test_all_partitions_are_searched_unless_one_is_named(users: Users) -> None:
    await users.put(b"ada", b"first", timestamp=1_000)
    await users.put(b"ada", b"second", partition=1, timestamp=NEWER_MS)
    await users.put(b"bob", None)
    await users.put(b"bob", b"alive", partition=1)

    status, answer = await users.get("ada")
    assert (status, answer["ambiguous"]) == (200, True)
    found = [(each["partition"], each["value"]) for each in answer["records"]]
    assert found == [(1, "second"), (0, "first")]
    assert (await users.get("ada", "?partition=0"))[1]["value"] == "first"
    assert (await users.get("bob"))[1]["value"] == "alive"
    assert (await users.get("bob", "?partition=0"))[1]["code"] == "deleted"


async def test_a_batch_has_an_answer_for_each_key_in_its_order(users: Users) -> None:
    await users.put(b"ada", b"1")
    await users.put(b"bob", b"2", partition=1)
    await users.put(b"eve", None)

    status, answer = await users.batch("bob", "nobody", "ada", "eve", "bob")

    assert status == 200
    records = answer["records"]
    assert [each["key"] for each in records] == ["bob", "nobody", "ada", "eve", "bob"]
    shown = [each.get("value", each.get("code")) for each in records]
    assert shown == ["2", "not_found", "1", "deleted", "2"]
    status, answer = await users.batch("bob", partition=0)
    assert answer["records"][0]["code"] == "not_found"
    status, answer = await users.batch("YWRh", key_encoding="base64url")
    assert answer["records"][0]["value"] == "1"


async def test_an_etag_holds_until_the_next_record_of_the_key(users: Users) -> None:
    await users.put(b"ada", b"1")
    await users.get("ada")
    etag = users.etag
    assert etag == '"0-0"'

    assert await users.get("ada", headers={"If-None-Match": f'W/{etag}, "x"'}) == (304, {})
    assert users.etag == etag
    await users.put(b"bob", b"1")
    assert (await users.get("ada", headers={"If-None-Match": "*"}))[0] == 304
    await users.put(b"ada", None)
    assert (await users.get("ada", headers={"If-None-Match": etag}))[0] == 404
    assert users.etag == '"0-2"'
    await users.get("nobody")
    assert users.etag == '"absent"'


async def test_a_request_waits_for_another_value(users: Users) -> None:
    await users.put(b"ada", b"1")
    await users.get("ada")
    waits = {"headers": {"If-None-Match": users.etag}}

    waiting = asyncio.create_task(users.get("ada", "?wait=60s", **waits))
    await users.put(b"bob", b"1")
    await users.put(b"ada", b"2", partition=1, timestamp=NEWER_MS)
    status, answer = await waiting
    assert (status, answer["records"][0]["value"]) == (200, "2")
    waiting = asyncio.create_task(
        users.get("eve", "?wait=60", headers={"If-None-Match": '"absent"'})
    )
    await users.put(b"eve", b"now")
    assert (await waiting)[1]["value"] == "now"
    assert (await users.get("eve", "?wait=0.05", headers={"If-None-Match": "*"}))[0] == 304


async def test_a_request_with_an_offset_is_answered_from_a_state_that_has_it(users: Users) -> None:
    await users.put(b"ada", b"1")
    reading = asyncio.create_task(users.get("ada", "?partition=0&min_offset=1&wait=60"))
    await users.put(b"ada", b"2")

    assert (await reading)[1]["value"] == "2"
    status, answer = await users.get("ada", "?partition=0&min_offset=2&wait=0.05")
    assert (status, answer["code"]) == (503, "not_stable_yet")
    assert "the last stable offset of users-0 is 2" in answer["error"]


async def test_a_value_of_any_size_is_returned_alone_and_too_many_are_refused(
    users: Users,
) -> None:
    half = b"x" * (ANSWER_BYTES_MAX // 2)
    await users.served.create("large", cleanup_policy="compact", max_message_bytes=str(16 << 20))
    for key in (b"a", b"b", b"c"):
        record = Record(offset=0, timestamp=0, key=key, value=half * (3 if key == b"c" else 1))
        await users.served.produce("large", build_batch([record]))

    status, answer = await users.ask("GET", "/v1/topics/large/keys/c")
    assert (status, len(answer["value"])) == (200, 3 * len(half))
    body = {"keys": ["a", "b", "c"]}
    status, answer = await users.ask("POST", "/v1/topics/large/keys:batch", json=body)
    assert (status, answer["code"]) == (413, "too_large")


REFUSALS = [
    ("?partition=2", 404, "has no partition 2: it has 2, counted from 0"),
    ("?partition=x", 400, "partition is a number, not 'x'"),
    ("?min_offset=1", 400, "min_offset is an offset of one partition: name it"),
    ("?wait=61", 400, "wait is a number of seconds up to 60, not '61'"),
    ("?wait=1m", 400, "wait is a number of seconds"),
    ("?key_encoding=hex", 400, "key_encoding is utf-8 or base64url, not 'hex'"),
    ("?key_encoding=base64url", 400, "is not base64url"),
    ("?patrition=1", 400, "there is no parameter 'patrition': there are key_encoding, min_offset"),
]


@pytest.mark.parametrize(("query", "status", "sentence"), REFUSALS)
async def test_a_wrong_parameter_is_refused_with_a_sentence(
    users: Users, query: str, status: int, sentence: str
) -> None:
    answered, answer = await users.get("a", query)

    assert (answered, sentence in answer["error"]) == (status, True), answer


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "the body is no such batch"),
        (b"[1]", "the body is no such batch"),
        (b'{"keys": []}', f"a batch has 1 to {KEYS_MAX} keys, not 0"),
        (b'{"keys": ["a"], "partition": -1}', "-1 is not the number of a partition"),
        (b'{"keys": ["a"], "topic": "x"}', "topic"),
        (b'{"keys": ["\xff"]}', "the body is no such batch"),
    ],
)
async def test_a_wrong_batch_is_refused_with_a_sentence(
    users: Users, body: bytes, sentence: str
) -> None:
    status, answer = await users.ask("POST", f"{TOPIC}/keys:batch", data=body)

    assert (status, answer["code"], sentence in answer["error"]) == (400, "bad_request", True)


async def test_a_batch_with_too_many_bytes_of_keys_is_refused_as_json(users: Users) -> None:
    body = io.BytesIO(b'{"keys": ["' + bytes(1 << 20) + b'"]}')
    status, answer = await users.ask("POST", f"{TOPIC}/keys:batch", data=body)

    assert (status, answer["code"]) == (413, "too_large")
    assert "the keys take more than 1 MiB" in answer["error"]


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
async def test_a_small_batch_may_inflate_to_much(users: Users, codec: Codec) -> None:
    """The loop inflates little; a thread inflates the rest."""
    records = [
        Record(offset=number, timestamp=0, key=b"key-%d" % number, value=b"v" * 10_000)
        for number in range(200)
    ]
    await users.served.produce("users", build_batch(records, codec=codec))
    await users.get("key-0")  # Makes the table.

    for number in (0, 199):
        status, answer = await users.get(f"key-{number}")
        assert (status, answer.get("value")) == (200, "v" * 10_000), answer
    status, answer = await users.batch(*(f"key-{number}" for number in range(100)))
    assert [each.get("offset") for each in answer["records"]] == [*range(100)]


async def test_topics_without_last_values_are_refused(users: Users) -> None:
    await users.served.create("plain", cleanup_policy="delete")

    status, answer = await users.ask("GET", "/v1/topics/nope/keys/a")
    assert (status, answer) == (404, {"error": "there is no topic nope", "code": "unknown_topic"})
    status, answer = await users.ask("GET", "/v1/topics/plain/keys/a")
    assert (status, answer["code"]) == (409, "not_compacted")
    status, answer = await users.ask("GET", "/v1/topics/__consumer_offsets/keys/a")
    assert status in (404, 409)


async def test_a_damaged_segment_ends_lookups_of_its_partition_and_says_so(users: Users) -> None:
    await users.put(b"ada", b"1")
    await users.put(b"bob", b"1", partition=1)
    log = users.served.log("users")
    damage(Path(log.segments[0].path(LOG)), log.segments[0].size - 1)

    status, answer = await users.get("ada")
    assert (status, answer["code"]) == (503, "damaged")
    assert "users-0 has a damaged segment" in answer["error"]
    assert (await users.get("bob", "?partition=1"))[1]["value"] == "1"


async def test_a_table_that_does_not_fit_is_refused_by_the_name_of_the_property(
    tmp_path: Path,
) -> None:
    small = {"key_lookup_bytes_max": str(1 << 20)}
    async with (
        serving_broker(tmp_path, http_listener="127.0.0.1:0", **small) as served,
        aiohttp.ClientSession() as session,
    ):
        users = Users(served, session)
        await served.create("users", 1, cleanup_policy="compact")
        records = [
            Record(offset=at, timestamp=0, key=b"%d" % at, value=b"") for at in range(50_000)
        ]
        await served.produce("users", build_batch(records))

        status, answer = await users.get("7")
        assert (status, answer["code"]) == (507, "too_many_keys")
        assert "raise key.lookup.bytes.max" in answer["error"]


async def test_a_deleted_topic_ends_a_wait(users: Users) -> None:
    await users.put(b"ada", b"1")
    waiting = asyncio.create_task(users.get("ada", "?wait=60", headers={"If-None-Match": "*"}))
    tables = await tables_of(users)
    while not tables.lookups_total:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)
    topic = users.served.broker.topics.get("users")
    assert topic is not None
    assert await users.served.broker.topics.delete(topic) is None

    assert (await waiting)[0] == 404


async def test_metrics_count_lookups_and_tables(users: Users) -> None:
    await users.put(b"ada", b"1")
    await users.batch("ada", "bob")

    facts = (await tables_of(users)).facts()
    assert (facts.lookups_total, facts.made_total, facts.tables) == (4, 2, 2)
    url = f"http://127.0.0.1:{users.served.broker.http_port}/metrics"
    async with users.session.get(url) as response:
        text = await response.text()
    assert "kompakt_key_lookups_total 4.0" in text
    assert f"kompakt_key_lookup_table_bytes {float(facts.table_bytes)}" in text


async def test_a_snapshot_has_the_values_of_its_moment(users: Users) -> None:
    await users.put(b"ada", b"old")
    await users.put(b"bob", b"here", partition=1)
    _, made = await users.ask("POST", "/v1/snapshots")
    await users.put(b"ada", b"new")
    await users.put(b"bob", None, partition=1)
    await users.put(b"eve", b"late")

    status, found = await users.get("ada", f"?snapshot={made['id']}")
    assert (status, found["value"], found["offset"]) == (200, "old", 0)
    assert found["topic"] == f"users.snapshot-{made['id']}"
    status, batch = await users.batch("ada", "bob", "eve", snapshot=made["id"])
    assert [each.get("value") for each in batch["records"]] == ["old", "here", None]
    assert (await users.get("ada"))[1]["value"] == "new"


async def test_a_snapshot_that_is_not_there_is_named(users: Users) -> None:
    await users.put(b"ada", b"1")
    _, made = await users.ask("POST", "/v1/snapshots")
    assert (await users.ask("DELETE", f"/v1/snapshots/{made['id']}"))[0] == 200

    for answer in (
        await users.get("ada", f"?snapshot={made['id']}"),
        await users.batch("ada", snapshot=made["id"]),
    ):
        status, refused = answer
        assert (status, refused["code"]) == (404, "unknown_snapshot")
        assert refused["error"] == f"there is no snapshot {made['id']} with topic users"


@pytest.mark.parametrize("query", ["&wait=1", "&min_offset=1&partition=0"])
async def test_nothing_is_waited_for_in_a_snapshot(users: Users, query: str) -> None:
    status, refused = await users.get("ada", f"?snapshot=20261130T041500-7f3a{query}")

    assert (status, refused["code"]) == (400, "bad_request")
    assert "a snapshot never changes" in refused["error"]
