"""Erasures in a whole broker: from the request to the certificates, and what holds them up."""

from __future__ import annotations

import asyncio
import shutil
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cleaner.kernel.kernel import siphash128
from protocol.records.record_batch import Codec, Record, build_batch
from protocol.wire.errors import UnsupportedMagic
from server.erasure import erasures as erasures_module
from server.erasure import log_works
from server.erasure import proofs as proofs_module
from server.erasure.certificate import canonical
from server.erasure.erasure import Erasure, KeyClaim
from server.erasure.erasures import Erasures
from server.erasure.intake import ErasureRefused
from server.erasure.needs import Tombstone
from server.erasure.proofs import LogProof, Prover, left_of
from server.erasure.state_table import ErasureState
from server.http import broker_facts
from server.metadata.store import MetadataStore, TxnResult
from storage.batches.validate import ValidBatch
from storage.files.kept_copies import KeptCopy
from storage.files.local_files import LocalFileSystem
from storage.files.signing_key import SigningKey
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from tests.harness.compacted_log import records_of
from tests.harness.steered_broker import SteeredBroker, steered_broker
from tests.harness.transactional_producer import TransactionalProducer

Json = dict[str, Any]
KEY, OTHER = b"alice@example.org", b"bob@example.org"
DAY_MS = 86_400_000
PATIENCE_SECONDS = 60.0


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow each other closely; what a look starts is awaited, never a time."""
    monkeypatch.setattr(erasures_module, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(erasures_module, "REST_LOOKS", 0)
    monkeypatch.setattr(log_works, "RETRY_SECONDS", 0.0)


async def create(
    broker: SteeredBroker, topic: str = "people", partitions: int = 1, **configs: str
) -> None:
    chosen = {"cleanup_policy": "compact", "delete_retention_ms": "0", **configs}
    await broker.served.create(topic, partitions, **chosen)


async def produce(
    broker: SteeredBroker,
    key: bytes,
    value: bytes | None,
    *,
    topic: str = "people",
    partition: int = 0,
    timestamp: int = 1_700_000_000_000,
    codec: Codec = Codec.NONE,
) -> None:
    record = Record(offset=0, timestamp=timestamp, key=key, value=value)
    await broker.served.produce(topic, build_batch([record], codec=codec), partition)


async def erase(
    broker: SteeredBroker, *keys: bytes, topic: str = "people", within_ms: int = 3 * DAY_MS
) -> list[Json]:
    status, answer = await broker.ask(
        "POST",
        f"/topics/{topic}/erase",
        json={"keys": [key.hex() for key in keys], "within_ms": within_ms},
    )
    assert status == 201, answer
    found: list[Json] = answer["erasures"]
    return found


async def until(broker: SteeredBroker, erasure: Json, holds: Callable[[Json], bool]) -> Json:
    """Returns the erasure once it is as expected."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds(erasure):
            await asyncio.sleep(0.01)
            erasure = await broker.get(f"/erasures/{erasure['id']}")
    return erasure


class ServedLog:
    """The log of the topic, as a producer of transactions appends to it."""

    def __init__(self, broker: SteeredBroker) -> None:
        self._broker = broker.served.broker
        self.log = broker.served.log("people")

    @property
    def now_ms(self) -> int:
        return self._broker.clock.now_ms()

    def append_batch(self, batch: ValidBatch) -> Appended:
        appended = self.log.appender.append_as_leader(batch, now_ms=self.now_ms)
        assert isinstance(appended, Appended), appended
        self.make_durable()
        return appended

    def make_durable(self) -> None:
        self._broker.group_commit.appended(self.log)


def is_in(*states: str) -> Callable[[Json], bool]:
    return lambda erasure: erasure["state"] in states


def bytes_on_disk(path: Path) -> bytes:
    """Returns all bytes of all files below a directory."""
    return b"".join(each.read_bytes() for each in sorted(path.rglob("*")) if each.is_file())


def files_of_topic(path: Path) -> Path:
    (topic,) = path.glob("people.*")
    return topic


def sidecar_of(path: Path, topic: str) -> Path:
    """Returns the sidecar of the first segment."""
    return min(path.glob(f"{topic}.*/0/*.keys"))


async def certificate(broker: SteeredBroker, erasure: Json) -> Json:
    return await broker.get(f"/erasures/{erasure['id']}/certificate")


async def verify(broker: SteeredBroker, signed: Json, key: bytes | None = None) -> Json:
    body: Json = {"certificate": signed} | ({} if key is None else {"key": key.hex()})
    topic = signed["certificate"]["topic"]
    status, answer = await broker.ask("POST", f"/topics/{topic}/verify-erasure", json=body)
    assert status == 200, answer
    return answer


def holds_it(text: str) -> Callable[[Json], bool]:
    return lambda erasure: any(text in holder["text"] for holder in erasure["holders"])


async def test_a_key_is_erased_certified_and_verified_and_no_byte_of_it_is_on_the_disk(
    tmp_path: Path,
) -> None:
    async with steered_broker(tmp_path) as broker:
        await create(broker, partitions=3)
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


async def test_what_holds_an_erasure_is_named_and_it_continues_when_that_lets_go(
    tmp_path: Path,
) -> None:
    async with steered_broker(tmp_path) as broker:
        await create(broker)
        await produce(broker, KEY, b"her address")
        await produce(broker, OTHER, b"his address")
        log = broker.served.log("people")
        await broker.post("/topics/people/pause")

        (erasure,) = await erase(broker, KEY)
        paused = await until(broker, erasure, holds_it("is paused"))
        assert paused["state"] == "cleaning"
        assert paused["holders"][0]["remedy"] == "kompakt compact resume people"

        producer = TransactionalProducer(cast("Any", ServedLog(broker)), 7)
        producer.send((b"carol", b"1"))
        await produce(broker, b"dave", b"1")
        (later,) = await erase(broker, b"dave")
        reader = log.segments[0].files
        reader.pin()
        await broker.post("/topics/people/resume")

        held = await until(broker, erasure, is_in("held"))
        assert "a reader still uses" in held["holders"][0]["text"]
        assert str(tmp_path) in held["holders"][0]["text"]
        assert b"her address" in bytes_on_disk(tmp_path), "the reader's file"
        status, _ = await broker.ask("GET", f"/erasures/{held['id']}/certificate")
        assert status == 409
        reader.unpin()
        await until(broker, held, is_in("erased", "complete"))
        assert b"her address" not in bytes_on_disk(tmp_path)

        pinned = await until(broker, later, holds_it("transaction"))
        assert "find-hanging" in pinned["holders"][0]["remedy"]
        producer.abort()
        await until(broker, pinned, is_in("erased", "complete"))


async def test_what_is_held_has_a_holder_also_while_the_broker_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops, looks, goes_on = threading.Event(), threading.Event(), threading.Event()

    def stopping(*arguments: Any, **named: Any) -> list[KeptCopy]:
        if stops.is_set():
            looks.set()
            assert goes_on.wait(PATIENCE_SECONDS)
        return left_of(*arguments, **named)

    monkeypatch.setattr(proofs_module, "left_of", stopping)
    async with steered_broker(tmp_path) as broker:
        await create(broker)
        await produce(broker, KEY, b"her address")
        reader = broker.served.log("people").segments[0].files
        reader.pin()
        (erasure,) = await erase(broker, KEY)
        await until(broker, erasure, is_in("held"))

        stops.set()
        assert await asyncio.to_thread(looks.wait, PATIENCE_SECONDS)
        erasure = await broker.get(f"/erasures/{erasure['id']}")
        stops.clear()
        goes_on.set()

        assert "a reader still uses" in erasure["holders"][0]["text"]
        reader.unpin()


async def test_an_erasure_survives_a_restart_and_the_store_never_has_the_key(
    tmp_path: Path,
) -> None:
    async with steered_broker(tmp_path) as broker:
        await create(broker)
        await produce(broker, KEY, b"her address")
        await broker.post("/topics/people/pause")
        (erasure,) = await erase(broker, KEY)
        assert KEY not in bytes_on_disk(tmp_path / "metadata")
        assert KEY.hex().encode() not in bytes_on_disk(tmp_path)

    async with steered_broker(tmp_path) as broker:
        assert (await broker.get("/erasures"))["erasures"][0]["id"] == erasure["id"]
        await broker.post("/topics/people/resume")
        erased = await until(broker, erasure, is_in("erased"))
        signed = await certificate(broker, erased)

    async with steered_broker(tmp_path) as broker:
        again = await until(broker, erased, holds_it("last record"))
        assert again["state"] == "erased"
        assert await certificate(broker, again) == signed
        assert (await verify(broker, signed, KEY))["holds"]
        await produce(broker, OTHER, b"something follows")
        complete = await until(broker, again, is_in("complete"))
        rows = (await certificate(broker, complete))["certificate"]["partitions"]
        assert rows[0]["tombstone"] is None


async def test_final_erasures_are_bounded_by_their_bytes_and_the_oldest_is_forgotten_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with steered_broker(tmp_path) as broker:
        await create(broker)
        ended = [
            await until(broker, erasure, is_in("complete"))
            for key in (b"1", b"2")
            for erasure in await erase(broker, key)
        ]
    async with steered_broker(tmp_path) as broker:
        assert await ids(broker) == [each["id"] for each in ended]
        compaction = broker.served.broker.compaction
        assert compaction is not None
        sizes = [each.stored_bytes for each in compaction.erasures.all()]
        assert min(sizes) > 1_000, "with their certificates"
        monkeypatch.setattr(erasures_module, "FINAL_BYTES_MAX", sum(sizes) + min(sizes) // 2)
        (erasure,) = await erase(broker, b"3")
        await until(broker, erasure, is_in("complete"))
        left = [ended[1]["id"], erasure["id"]]
        found = await ids(broker)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while found != left:
                await asyncio.sleep(0.01)
                found = await ids(broker)
    async with steered_broker(tmp_path) as broker:
        assert await ids(broker) == left


async def test_the_loop_has_turns_while_stored_erasures_are_read() -> None:
    erasure = Erasure(
        id="",
        topic="people",
        topic_id=uuid.UUID(int=1),
        requested_ms=0,
        deadline_ms=1,
        claim=KeyClaim(salt=b"", hash=b""),
        hashes={},
        partitions=(),
        state=ErasureState.COMPLETE,
    )
    stored = [replace(erasure, id=str(number)) for number in range(20)]
    nothing: Any = None
    erasures = Erasures(
        cast("Any", FullStore(stored)),
        nothing, nothing, nothing, nothing, nothing,
        hold_of=nothing, clock=nothing, threads=nothing,
    )  # fmt: skip
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.ensure_future(count_turns())
    await erasures.open()
    others.cancel()

    assert [each.erasure for each in erasures.all()] == stored
    assert turns >= len(stored)


class FullStore:
    """A store that has erasures."""

    def __init__(self, erasures: Sequence[Erasure]) -> None:
        self._entries = [
            SimpleNamespace(key=each.store_key, value=each.to_store()) for each in erasures
        ]

    async def range(self, _: str) -> Any:
        return SimpleNamespace(entries=self._entries)


async def ids(broker: SteeredBroker) -> list[str]:
    return [each["id"] for each in (await broker.get("/erasures"))["erasures"]]


async def test_later_records_and_other_topics_are_no_part_of_it(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await create(broker)
        await create(broker, "others")
        await produce(broker, KEY, b"her old address")
        await produce(broker, KEY, b"her address elsewhere", topic="others")
        (erasure,) = await erase(broker, KEY)
        await produce(broker, KEY, b"her new address")

        complete = await until(broker, erasure, is_in("complete"))

        assert (await verify(broker, await certificate(broker, complete), KEY))["holds"]
        data = bytes_on_disk(tmp_path)
        assert b"her old address" not in data
        assert b"her new address" in data
        assert b"her address elsewhere" in data

        # The key has a record again, but above the offsets.
        (gone,) = await erase(broker, b"nowhere")
        never = await until(broker, gone, is_in("complete"))
        assert [part["had_records"] for part in never["partitions"]] == [False]

        (ended,) = await erase(broker, KEY, topic="others")
        topic = broker.served.broker.topics.get("others")
        assert topic is not None
        await broker.served.broker.topics.delete(topic)
        await until(broker, ended, is_in("ended"))


@pytest.mark.parametrize(
    "configs",
    [
        pytest.param({"compaction_strategy": "timestamp"}, id="versions"),
        pytest.param({"compaction_versions": "3"}, id="older values"),
        pytest.param({"compression_type": "zstd"}, id="compressed"),
        pytest.param({"message_timestamp_type": "LogAppendTime"}, id="append time"),
    ],
)
async def test_each_kind_of_topic_is_erased(configs: dict[str, str], tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await create(broker, "people", 1, **configs)
        future_ms = broker.served.broker.clock.now_ms() + 1_800_000
        for number in range(4):
            timestamp = (
                future_ms - number if "compaction_strategy" in configs else 1_700_000_000_000
            )
            value = b"her address %d" % number
            await produce(broker, KEY, value, timestamp=timestamp, codec=Codec.GZIP)
            await produce(broker, OTHER, b"his address", codec=Codec.GZIP)
        (erasure,) = await erase(broker, KEY)
        await produce(broker, b"carol", b"something follows")

        complete = await until(broker, erasure, is_in("complete"))

        assert (await verify(broker, await certificate(broker, complete), KEY))["holds"]
        assert {record.key for record in records_of(broker.served.log("people"))} == {
            OTHER,
            b"carol",
        }


async def test_what_cannot_be_erased_is_refused_and_no_answer_or_log_line_repeats_the_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with steered_broker(tmp_path) as broker:
        await create(broker)
        await broker.served.create("events", 1)
        await produce(broker, KEY, b"1")
        keys = [KEY.hex()]
        refused = [
            ("/topics/none/erase", {"keys": keys, "within_ms": 1000}, 404),
            ("/topics/events/erase", {"keys": keys, "within_ms": 1000}, 409),
            ("/topics/__consumer_offsets/erase", {"keys": keys, "within_ms": 1000}, 404),
            ("/topics/people/erase", {"keys": keys, "within_ms": 0}, 400),
            ("/topics/people/erase", {"keys": [], "within_ms": 1000}, 400),
            ("/topics/people/erase", {"keys": ["no digits"], "within_ms": 1000}, 400),
            (
                "/topics/people/erase",
                {"keys": [f"{n:04x}" for n in range(101)], "within_ms": 9},
                400,
            ),
            ("/topics/people/erase", [], 400),
            ("/topics/people/verify-erasure", {"certificate": {}}, 400),
        ]
        for path, body, expected in refused:
            status, answer = await broker.ask("POST", path, json=body)
            assert (status, bool(answer["error"])) == (expected, True), (path, answer)
            assert KEY.decode() not in str(answer)
            assert KEY.hex() not in str(answer)
        assert (await broker.ask("GET", "/erasures/unknown"))[0] == 404
        assert (await broker.get("/erasures"))["erasures"] == []
        (erasure,) = await erase(broker, KEY)
        await until(broker, erasure, is_in("erased"))
    assert KEY.decode() not in caplog.text
    assert KEY.hex() not in caplog.text


async def test_a_deadline_at_risk_is_told_with_the_answer_and_counted(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await create(broker, delete_retention_ms=str(DAY_MS))
        await produce(broker, KEY, b"1")
        await produce(broker, OTHER, b"1")

        (late,) = await erase(broker, KEY, within_ms=DAY_MS // 2)
        (in_time,) = await erase(broker, OTHER)
        assert (late["risk"], in_time["risk"]) == ("at risk", "none")
        waits = await until(broker, late, holds_it("delete.retention.ms"))

        assert waits["risk"] == "at risk"
        assert waits["expected_ms"] > waits["deadline_ms"]
        await until(broker, in_time, holds_it("delete.retention.ms"))
        facts = broker_facts(broker.served.broker).erasures
        assert facts is not None
        assert (facts.by_state["erased"], facts.at_risk, facts.overdue) == (2, 1, 0)
        assert facts.next_deadline_seconds is not None
        assert 0 < facts.next_deadline_seconds < DAY_MS / 2000


async def test_a_certificate_that_does_not_hold_is_told_with_the_reason(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await create(broker)
        await produce(broker, KEY, b"1")
        await produce(broker, OTHER, b"2")
        (erasure,) = await erase(broker, KEY)
        signed = await certificate(broker, await until(broker, erasure, is_in("erased")))
        log = broker.served.log("people")
        body = signed["certificate"]
        key = SigningKey.load_or_create(LocalFileSystem(), str(tmp_path))

        def certified(**changes: object) -> Json:
            said = body | changes
            return {
                "certificate": said,
                "public_key": key.public_key.hex(),
                "signature": key.sign(canonical(said)).hex(),
            }

        (row,) = body["partitions"]
        hash_of_other = siphash128(log.identity.hash_key, OTHER).hex()
        verdicts = {
            "has a record of the key at offset 1": await verify(
                broker, certified(partitions=[row | {"key_hash": hash_of_other}])
            ),
            "it is about another key": await verify(broker, signed, OTHER),
            "another hash.key": await verify(
                broker, certified(partitions=[row | {"secret": "00" * 8}])
            ),
            "was deleted": await verify(broker, certified(topic_id="AAAAAAAAAAAAAAAAAAAAAA")),
        }
        for said, verdict in verdicts.items():
            assert not verdict["holds"]
            assert said in verdict["problems"][0], verdict
        (tmp_path / "other").mkdir()
        other = SigningKey.load_or_create(LocalFileSystem(), str(tmp_path / "other"))
        foreign = {
            "certificate": body,
            "public_key": other.public_key.hex(),
            "signature": other.sign(canonical(body)).hex(),
        }
        assert "another key than this broker's" in (await verify(broker, foreign))["problems"][0]
        assert (await verify(broker, signed))["holds"]


async def test_keys_of_one_request_share_their_passes_and_readings(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await create(broker, delete_retention_ms=str(DAY_MS))
        await produce(broker, KEY, b"1")
        await produce(broker, OTHER, b"1")

        both = await erase(broker, KEY, OTHER, KEY)
        assert len({erasure["id"] for erasure in both}) == 2
        for erasure in both:
            await until(broker, erasure, is_in("erased"))

        passes = (await broker.get("/history"))["passes"]
        assert len(passes) == 1


async def test_a_tombstone_that_is_outranked_is_noticed_and_the_next_one_erases_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with steered_broker(tmp_path) as broker:
        await create(broker, compaction_strategy="timestamp")
        await produce(broker, KEY, b"1")
        await produce(broker, OTHER, b"1")
        with monkeypatch.context() as patch:
            # As if a producer had appended a record between the search and the tombstone.
            low = Record(offset=0, timestamp=1, key=KEY, value=None)
            patch.setattr("server.erasure.intake._tombstone", lambda *_: low)
            (erasure,) = await erase(broker, KEY)
        await produce(broker, b"carol", b"1")

        noticed = await until(
            broker, erasure, lambda each: each["partitions"][0]["needs"] == "pass"
        )
        assert noticed["state"] == "cleaning"
        (again,) = await erase(broker, KEY)
        await produce(broker, b"dave", b"1")

        for each in (noticed, again):
            await until(broker, each, is_in("complete"))


async def test_files_of_an_older_state_that_are_put_back_withdraw_the_certificate(
    tmp_path: Path,
) -> None:
    async with steered_broker(tmp_path) as broker:
        await create(broker)
        await produce(broker, KEY, b"1")
    topic = files_of_topic(tmp_path)
    shutil.copytree(topic, tmp_path.parent / "older")
    async with steered_broker(tmp_path) as broker:
        (erasure,) = await erase(broker, KEY)
        await until(broker, erasure, is_in("erased"))
    shutil.rmtree(topic)
    shutil.move(tmp_path.parent / "older", topic)

    async with steered_broker(tmp_path) as broker:
        back = await until(broker, erasure, holds_it("was put back"))

        assert (back["state"], back["is_certified"]) == ("cleaning", False)


async def test_a_search_that_a_wrong_sidecar_has_misled_is_noticed_by_the_proof(
    tmp_path: Path,
) -> None:
    async with steered_broker(tmp_path) as broker:
        for topic, key in (("people", KEY), ("others", b"x" * len(KEY))):
            await create(broker, topic)
            await produce(broker, key, b"1", topic=topic)
            await produce(broker, OTHER, b"1", topic=topic)
            job = await broker.post(f"/topics/{topic}/now")
            await broker.finished(job)
        wrong = sidecar_of(tmp_path, "others").read_bytes()
        # It is sound, and of a segment with the same name and size.
        sidecar_of(tmp_path, "people").write_bytes(wrong)

        (misled,) = await erase(broker, KEY)
        assert [part["had_records"] for part in misled["partitions"]] == [False]
        noticed = await until(broker, misled, lambda each: each["partitions"][0]["needs"] == "pass")
        assert noticed["state"] == "cleaning"
        (again,) = await erase(broker, KEY)
        assert [part["had_records"] for part in again["partitions"]] == [True]
        await produce(broker, b"carol", b"1")

        for each in (noticed, again):
            await until(broker, each, is_in("complete"))


async def test_a_look_that_fails_holds_up_no_other_erasure_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with steered_broker(tmp_path) as broker:
        for topic in ("people", "others"):
            await create(broker, topic)
            await produce(broker, KEY, b"1", topic=topic)
        (damaged,) = await erase(broker, KEY)
        await until(broker, damaged, holds_it("last record"))
        tombstones_at = Prover.tombstones_at

        async def fails_for_people(
            prover: Prover, log: PartitionLog, offsets: Sequence[int]
        ) -> Mapping[int, Tombstone]:
            if log.topic_partition.topic == "people":
                raise UnsupportedMagic(1)
            return await tombstones_at(prover, log, offsets)

        with monkeypatch.context() as patch:
            patch.setattr(Prover, "tombstones_at", fails_for_people)
            await produce(broker, OTHER, b"something follows")
            broker.served.log("people").roll(0)
            named = await until(broker, damaged, holds_it("message format 1"))
            assert named["state"] == "erased"
            (sound,) = await erase(broker, KEY, topic="others")
            await until(broker, sound, is_in("erased"))
        await until(broker, named, is_in("complete"))


async def test_an_erasure_that_is_stored_is_accepted_although_the_first_look_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with steered_broker(tmp_path) as broker:
        await create(broker)
        await produce(broker, KEY, b"1")
        with monkeypatch.context() as patch:
            patch.setattr(erasures_module, "Looks", raising_look)
            (erasure,) = await erase(broker, KEY)
        await until(broker, erasure, is_in("erased"))


def raising_look(*_: object) -> None:
    raise UnsupportedMagic(1)


async def test_an_erasure_that_is_stored_during_the_stop_starts_no_look(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await create(broker)
        await produce(broker, KEY, b"1")
        compaction = broker.served.broker.compaction
        assert compaction is not None
        erasures = compaction.erasures
        store = HeldStore(erasures._store)
        erasures._store = cast("Any", store)

        request = asyncio.ensure_future(erasures.request("people", [KEY], DAY_MS))
        await store.asked.wait()
        await erasures.stop()
        store.released.set()

        (accepted,) = await request
        assert erasures.get(accepted.id) is not None
        assert "erasures" not in {task.get_name() for task in asyncio.all_tasks()}
        assert "erasure work" not in {task.get_name() for task in asyncio.all_tasks()}
        with pytest.raises(ErasureRefused, match="is stopping"):
            await erasures.request("people", [OTHER], DAY_MS)


class HeldStore:
    """A store whose next transaction waits."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self.asked = asyncio.Event()
        self.released = asyncio.Event()

    async def txn(self, *arguments: Any) -> TxnResult:
        self.asked.set()
        await self.released.wait()
        return await self._store.txn(*arguments)


async def test_an_undo_between_the_proofs_of_two_partitions_prevents_the_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with steered_broker(tmp_path) as broker:
        await create(broker, partitions=2, compaction_undo_ms=str(DAY_MS))
        for partition in (0, 1):
            await produce(broker, KEY, b"her address", partition=partition)
            await produce(broker, OTHER, b"his address", partition=partition)
        is_held, is_released = asyncio.Event(), asyncio.Event()
        prove = Prover.prove

        async def prove_the_second_late(prover: Prover, log: PartitionLog, *rest: Any) -> LogProof:
            if log.topic_partition.partition == 1:
                is_held.set()
                await is_released.wait()
            return await prove(prover, log, *rest)

        monkeypatch.setattr(Prover, "prove", prove_the_second_late)
        (erasure,) = await erase(broker, KEY)
        try:
            await until(broker, erasure, needs("nothing", "prove"))
            await is_held.wait()
            (undos,) = (await broker.get("/topics/people/partitions/0/undo"))["partitions"]
            (kept,) = undos["passes"]
            await broker.post(f"/topics/people/partitions/0/undo?pass={kept['number']}")
            assert KEY in {record.key for record in records_of(broker.served.log("people"))}
        finally:
            is_released.set()  # The stop waits for it.

        is_over = is_in("held", "erased", "complete")
        waits = await until(
            broker, erasure, lambda each: is_over(each) or needs("wait", "nothing")(each)
        )
        assert (waits["state"], waits["is_certified"]) == ("cleaning", False)
        assert "cleaning of people-0 is paused" in waits["holders"][0]["text"]

        await broker.post("/topics/people/resume")
        await until(broker, waits, is_in("erased"))
        assert b"her address" not in bytes_on_disk(tmp_path)


def needs(*expected: str) -> Callable[[Json], bool]:
    return lambda erasure: [each["needs"] for each in erasure["partitions"]] == [*expected]
