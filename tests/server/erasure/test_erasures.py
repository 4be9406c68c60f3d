"""Erasures in a whole broker: from the request to the certificates, and what holds them up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol.records.record_batch import Codec, Record, build_batch
from server.erasure import erasures as erasures_module
from tests.harness.steered_broker import SteeredBroker, steered_broker

Json = dict[str, Any]
KEY, OTHER = b"alice@example.org", b"bob@example.org"
DAY_MS = 86_400_000
PATIENCE_SECONDS = 60.0


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow each other closely; what a look starts is awaited, never a time."""
    monkeypatch.setattr(erasures_module, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(erasures_module, "REST_LOOKS", 0)
    monkeypatch.setattr(erasures_module, "RETRY_SECONDS", 0.0)


@asynccontextmanager
async def broker_with_topic(
    path: Path, partitions: int = 1, **configs: str
) -> AsyncIterator[SteeredBroker]:
    async with steered_broker(path) as broker:
        chosen = {"cleanup_policy": "compact", "delete_retention_ms": "0", **configs}
        await broker.served.create("people", partitions, **chosen)
        yield broker


async def produce(
    broker: SteeredBroker,
    key: bytes,
    value: bytes | None,
    *,
    partition: int = 0,
    codec: Codec = Codec.NONE,
) -> None:
    record = Record(offset=0, timestamp=1_700_000_000_000, key=key, value=value)
    await broker.served.produce("people", build_batch([record], codec=codec), partition)


async def erase(broker: SteeredBroker, *keys: bytes, within_ms: int = 3 * DAY_MS) -> list[Json]:
    status, answer = await broker.ask(
        "POST",
        "/topics/people/erase",
        json={"keys": [key.hex() for key in keys], "within_ms": within_ms},
    )
    assert status == 201, answer
    found: list[Json] = answer["erasures"]
    return found


async def until(
    broker: SteeredBroker, erasure: Json, holds: Callable[[Json], bool]
) -> Json:
    """Returns the erasure once it is as expected."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds(erasure):
            await asyncio.sleep(0.01)
            erasure = await broker.get(f"/erasures/{erasure['id']}")
    return erasure


def is_in(*states: str) -> Callable[[Json], bool]:
    return lambda erasure: erasure["state"] in states


def bytes_on_disk(path: Path) -> bytes:
    """Returns all bytes of all files below a directory."""
    return b"".join(each.read_bytes() for each in sorted(path.rglob("*")) if each.is_file())


async def certificate(broker: SteeredBroker, erasure: Json) -> Json:
    return await broker.get(f"/erasures/{erasure['id']}/certificate")


async def verify(broker: SteeredBroker, signed: Json, key: bytes | None = None) -> Json:
    body: Json = {"certificate": signed} | ({} if key is None else {"key": key.hex()})
    status, answer = await broker.ask("POST", "/topics/people/verify-erasure", json=body)
    assert status == 200, answer
    return answer


async def test_a_key_is_erased_certified_and_verified_and_no_byte_of_it_is_on_the_disk(
    tmp_path: Path,
) -> None:
    async with broker_with_topic(tmp_path, 3) as broker:
        await produce(broker, KEY, b"her address", partition=0)
        await produce(broker, OTHER, b"his address", partition=0)
        await produce(broker, KEY, b"her other address", partition=2)
        await produce(broker, OTHER, b"another one", partition=1)

        (erasure,) = await erase(broker, KEY)
        assert [part["had_records"] for part in erasure["partitions"]] == [True, False, True]
        assert [part["below"] for part in erasure["partitions"]] == [2, 1, 1]
        erased = await until(broker, erasure, is_in("erased"))
        signed = await certificate(broker, erased)
        assert signed["certificate"]["state"] == "erased"
        assert (await verify(broker, signed, KEY))["holds"]
        assert b"her address" not in bytes_on_disk(tmp_path)
        assert KEY in bytes_on_disk(tmp_path), "the tombstones have it"

        for partition in (0, 2):
            await produce(broker, b"carol", b"something follows", partition=partition)
        complete = await until(broker, erased, is_in("complete"))

        final = await certificate(broker, complete)
        assert final["certificate"]["state"] == "complete"
        assert [row["tombstone"] for row in final["certificate"]["partitions"]] == [None] * 3
        verdict = await verify(broker, final, KEY)
        assert verdict == {**verdict, "holds": True, "problems": [], "notes": []}
        assert KEY not in bytes_on_disk(tmp_path)
        assert b"his address" in bytes_on_disk(tmp_path)
