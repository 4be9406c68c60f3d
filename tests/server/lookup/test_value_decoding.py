"""Values that name a schema of a registry, decoded over HTTP, in a whole broker."""

from __future__ import annotations

import asyncio
import json
import threading
from base64 import b64encode, urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from protocol.records.record_batch import Record, build_batch
from server.config.config import BrokerConfig
from server.lookup import value_decoding
from server.net.listener import ListenError
from storage.formats.config_property import ConfigError
from tests.harness.fake_registry import FakeRegistry, send, with_header
from tests.harness.served_broker import ServedBroker, serving_broker

Json = dict[str, Any]
URL = "schema.registry.url"
FIELDS = [{"name": "city", "type": "string"}]
USER = json.dumps({"type": "record", "name": "User", "fields": FIELDS})
LONDON, PARIS = b"\x0cLondon", b"\x0aParis"


class Site:
    """A broker with a registry and a compacted topic, and a client of its HTTP endpoint."""

    def __init__(
        self, served: ServedBroker, session: aiohttp.ClientSession, registry: FakeRegistry
    ) -> None:
        self.served = served
        self.session = session
        self.registry = registry

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.served.broker.http_port}/v1/topics/users"

    async def put(self, key: bytes, value: bytes | None, *, partition: int = 0) -> None:
        record = Record(offset=0, timestamp=1_000, key=key, value=value)
        await self.served.produce("users", build_batch([record]), partition=partition)

    async def get(self, key: bytes, query: str = "", **options: Any) -> tuple[int, Json]:
        named = urlsafe_b64encode(key).decode()
        url = f"{self.root}/keys/{named}?key_encoding=base64url{query}"
        async with self.session.get(url, **options) as response:
            return response.status, await response.json() if response.status != 304 else {}

    async def batch(self, *keys: str, **members: Any) -> list[Json]:
        body = {"keys": keys, **members}
        async with self.session.post(f"{self.root}/keys:batch", json=body) as response:
            assert response.status == 200, await response.text()
            records: list[Json] = (await response.json())["records"]
            return records

    async def changes(self, query: str = "") -> list[tuple[str, Json]]:
        """Returns the events of a stream that ends with the state."""
        url = f"{self.root}/changes?follow=false{query}"
        async with self.session.get(url) as response:
            text = await response.text()
        found = [
            dict(line.split(": ", 1) for line in each.splitlines()) for each in text.split("\n\n")
        ]
        return [(each["event"], json.loads(each["data"])) for each in found if "event" in each]


@asynccontextmanager
async def running(folder: Path, **properties: str) -> AsyncIterator[Site]:
    with FakeRegistry().served() as registry:
        properties = {"schema_registry_url": registry.url, **properties}
        async with (
            serving_broker(folder, http_listener="127.0.0.1:0", **properties) as served,
            aiohttp.ClientSession() as session,
        ):
            await served.create("users", 2, cleanup_policy="compact")
            yield Site(served, session, registry)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with running(tmp_path) as running_site:
        yield running_site


async def test_a_value_that_names_its_schema_is_decoded(site: Site) -> None:
    schema = site.registry.add(USER)
    data = with_header(schema, LONDON)
    await site.put(b"ada", data)

    status, answer = await site.get(b"ada")
    assert status == 200
    assert answer["value"] == {"city": "London"}
    assert answer["value_encoding"] == "json"
    assert answer["schema"] == {"id": schema, "type": "AVRO"}
    assert "undecoded" not in answer
    _, raw = await site.get(b"ada", "&value_format=raw")
    assert (raw["value"], raw["value_encoding"]) == (data.decode(), "utf-8")
    assert "schema" not in raw
    await site.get(b"ada")
    assert site.registry.asked == [f"/schemas/ids/{schema}"], "a schema is fetched once"


async def test_a_value_without_a_schema_stays_as_it_is(site: Site) -> None:
    await site.put(b"ada", b"text")
    await site.put(b"bob", None)

    assert (await site.get(b"ada"))[1]["value"] == "text"
    assert (await site.get(b"bob"))[1]["code"] == "deleted"
    assert site.registry.asked == []


async def test_a_value_that_cannot_be_decoded_stays_as_it_is_and_says_why(site: Site) -> None:
    schema = site.registry.add(USER)
    await site.put(b"ada", with_header(99, b"\xff"))
    await site.put(b"bob", with_header(schema, b"\xff"))

    status, answer = await site.get(b"ada")
    assert status == 200
    assert answer["value"] == b64encode(with_header(99, b"\xff")).decode()
    assert answer["value_encoding"] == "base64"
    assert answer["schema"] == {"id": 99}
    assert answer["undecoded"]["code"] == "unknown_schema"
    assert "has no schema 99" in answer["undecoded"]["error"]
    assert (await site.get(b"bob"))[1]["undecoded"]["code"] == "bad_value"


async def test_a_key_that_names_its_schema_is_shown_decoded_and_as_it_can_be_asked_for(
    site: Site,
) -> None:
    schema = site.registry.add('"string"')
    key = with_header(schema, b"\x06ada")
    await site.put(key, b"text")

    _, answer = await site.get(key)
    assert (answer["key"], answer["key_encoding"]) == (key.decode(), "utf-8")
    assert answer["decoded_key"] == "ada"
    assert answer["key_schema"] == {"id": schema, "type": "AVRO"}
    assert answer["value"] == "text"


async def test_the_values_of_a_batch_are_decoded_each_by_its_schema(site: Site) -> None:
    user, name = site.registry.add(USER), site.registry.add('"string"')
    await site.put(b"ada", with_header(user, LONDON))
    await site.put(b"bob", with_header(name, b"\x06bob"), partition=1)
    await site.put(b"eve", with_header(99, b""))
    await site.put(b"text", b"text")

    records = await site.batch("ada", "bob", "eve", "text", "nobody", "ada")
    shown = [each.get("value") for each in records]
    assert shown == [{"city": "London"}, "bob", "\0\0\0\0c", "text", None, {"city": "London"}]
    assert records[2]["undecoded"]["code"] == "unknown_schema"
    raw = await site.batch("ada", value_format="raw")
    assert raw[0]["value_encoding"] == "utf-8"


async def test_an_ambiguous_answer_has_all_its_values_decoded(site: Site) -> None:
    schema = site.registry.add(USER)
    await site.put(b"ada", with_header(schema, LONDON))
    await site.put(b"ada", with_header(schema, PARIS), partition=1)

    _, answer = await site.get(b"ada")
    cities = sorted(each["value"]["city"] for each in answer["records"])
    assert cities == ["London", "Paris"]


async def test_what_is_decoded_for_an_answer_has_a_bound(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_decoding, "DECODED_BYTES_MAX", 20)
    schema = site.registry.add(USER)
    await site.put(b"ada", with_header(schema, LONDON))
    await site.put(b"bob", with_header(schema, PARIS))

    first, second = await site.batch("ada", "bob")
    assert first["value"] == {"city": "London"}
    assert second["undecoded"]["code"] == "too_large"


async def test_a_value_that_ends_the_decoding_process_harms_nothing_else(site: Site) -> None:
    link = {"name": "next", "type": ["null", "Chain"]}
    chain = site.registry.add(json.dumps({"type": "record", "name": "Chain", "fields": [link]}))
    user = site.registry.add(USER)
    await site.put(b"bomb", with_header(chain, b"\x02" * 900_000 + b"\0"))
    await site.put(b"ada", with_header(user, LONDON))

    bomb, ada = await site.batch("bomb", "ada")
    assert bomb["undecoded"]["code"] == "too_complex"
    assert ada["value"] == {"city": "London"}


async def test_the_events_of_changes_are_decoded(site: Site) -> None:
    schema, name = site.registry.add(USER), site.registry.add('"string"')
    key = with_header(name, b"\x06ada")
    await site.put(key, with_header(schema, LONDON))
    await site.put(with_header(name, b"\x06bob"), None)
    await site.put(b"eve", with_header(schema, b"\xff"))
    for number in range(70):
        await site.put(b"key %d" % number, with_header(schema, PARIS), partition=1)

    events = await site.changes()
    found = {
        json.dumps(data.get("decoded_key", data.get("key"))): (kind, data) for kind, data in events
    }
    kind, ada = found['"ada"']
    assert (kind, ada["value"], ada["schema"]["id"]) == ("value", {"city": "London"}, schema)
    assert ada["key"] == key.decode()
    assert found['"bob"'][0] == "deleted"
    assert found['"eve"'][1]["undecoded"]["code"] == "bad_value"
    assert [data.get("value") for _, data in events].count({"city": "Paris"}) == 70
    raw = await site.changes("&value_format=raw")
    assert "decoded_key" not in raw[0][1]


async def test_an_unknown_format_is_refused(site: Site) -> None:
    status, answer = await site.get(b"ada", "&value_format=avro")
    assert (status, answer["error"]) == (400, "value_format is auto or raw, not 'avro'")


async def test_other_requests_do_not_wait_for_a_slow_registry(site: Site) -> None:
    schema = site.registry.add(USER)
    await site.put(b"ada", with_header(schema, LONDON))
    await site.put(b"bob", b"text")
    begun, go = threading.Event(), threading.Event()

    def slow(handler: BaseHTTPRequestHandler) -> None:
        begun.set()
        go.wait(20)
        send(handler, 200, json.dumps({"schema": USER}).encode())

    site.registry.instead = slow
    # More than may be answered at once.
    waiting = [asyncio.create_task(site.get(b"ada")) for _ in range(40)]
    await asyncio.to_thread(begun.wait, 20)

    assert (await site.get(b"bob"))[1]["value"] == "text"
    assert not any(each.done() for each in waiting)
    go.set()
    answers = await asyncio.gather(*waiting)
    assert all(answer["value"] == {"city": "London"} for _, answer in answers)
    assert len(site.registry.asked) == 1


async def test_the_etag_is_about_the_record_and_decoded_values_can_be_waited_for(
    site: Site,
) -> None:
    schema = site.registry.add(USER)
    await site.put(b"ada", with_header(schema, LONDON))
    held: Json = {"headers": {"If-None-Match": '"0-0"'}}

    assert (await site.get(b"ada", **held))[0] == 304
    waiting = asyncio.create_task(site.get(b"ada", "&wait=60", **held))
    await site.put(b"ada", with_header(schema, PARIS))
    assert (await waiting)[1]["value"] == {"city": "Paris"}


async def test_without_a_registry_values_stay_as_they_are(tmp_path: Path) -> None:
    async with running(tmp_path, schema_registry_url="") as site:
        await site.put(b"ada", with_header(1, LONDON))
        _, answer = await site.get(b"ada")
        assert answer["value"] == with_header(1, LONDON).decode()
        assert "schema" not in answer
        assert site.served.broker.decoding is None


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({URL: "registry:8081"}, "schema.registry.url: registry:8081 is not of the form"),
        ({URL: "http://a,ftp://b"}, "schema.registry.url: ftp://b is not of the form"),
        ({URL: "http://a:b@c"}, "schema.registry.basic.auth.user.info"),
        (
            {URL: "http://a", "schema.registry.basic.auth.user.info": "s3cret"},
            "schema.registry.basic.auth.user.info: it has the form user:password",
        ),
    ],
)
def test_a_registry_that_cannot_be_used_is_refused_at_the_start(
    properties: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_texts(properties)
    assert said in str(refused.value)
    assert "s3cret" not in str(refused.value)


async def test_a_trust_store_that_cannot_be_read_is_refused_at_the_start(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(
        ListenError, match=r"schema.registry.\*: ssl.truststore.location=.*missing.pem"
    ):
        async with running(
            tmp_path / "data",
            schema_registry_url="https://registry:8081",
            schema_registry_ssl_truststore_location=missing,
        ):
            pass
