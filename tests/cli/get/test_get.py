"""`kompakt get` with a whole broker: which keys it finds, and how it asks for them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cli.base.command_end import CommandFailed
from cli.compact.client import CallFailed
from cli.get.get import KEY_BYTES_A_REQUEST, KEYS_A_REQUEST, Lookup, chunks, get_values
from cli.get.output import Printing
from protocol.records.record import Record
from protocol.records.record_batch import build_batch
from server.snapshots.making import Wanted
from tests.harness.fake_registry import FakeRegistry, with_header
from tests.harness.served_broker import NOW_MS
from tests.harness.steered_broker import SteeredBroker, steered_broker

PATIENCE_SECONDS = 60.0
WAIT_SECONDS_MAX = 60
LARGE_BYTES = 900_000
ROUNDS_PAUSE_SECONDS = 0.05


class Reader:
    """Writes keys to the topic users, and gets them as the command does."""

    def __init__(self, broker: SteeredBroker, capsys: pytest.CaptureFixture[bytes]) -> None:
        self.broker = broker
        self._capsys = capsys

    async def write(self, records: dict[bytes, bytes | None], partition: int = 0) -> None:
        batch = build_batch(
            [
                Record(offset=number, timestamp=NOW_MS, key=key, value=value)
                for number, (key, value) in enumerate(records.items())
            ]
        )
        await self.broker.served.produce("users", batch, partition)

    async def get(
        self, *keys: bytes, printing: Printing | None = None, topic: str = "users", **how: Any
    ) -> tuple[int, bytes, str]:
        """Returns the exit code, the output, and what is said beside it."""
        lookup = Lookup(topic=topic, keys=keys, **how)
        code = await get_values(self.broker.url, lookup, printing or Printing())
        shown = self._capsys.readouterr()
        return code, shown.out, shown.err.decode()

    async def get_json(self, *keys: bytes, **how: Any) -> Any:
        return json.loads((await self.get(*keys, printing=Printing(is_json=True), **how))[1])


@pytest.fixture
async def reader(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> AsyncIterator[Reader]:
    async with steered_broker(tmp_path) as broker:
        await broker.served.create("users", 2, cleanup_policy="compact")
        yield Reader(broker, capsysbinary)


async def test_get_returns_the_last_value_of_a_key(reader: Reader) -> None:
    await reader.write({b"ada": b"London"})
    await reader.write({b"bob": b"Paris"}, partition=1)
    assert await reader.get(b"ada") == (0, b"London\n", "")

    await reader.write({b"ada": "Zürich".encode()})

    assert await reader.get(b"ada") == (0, "Zürich\n".encode(), "")
    assert await reader.get(b"bob") == (0, b"Paris\n", "")
    found = await reader.get_json(b"ada")
    assert (found["partition"], found["offset"], found["timestamp_ms"]) == (0, 1, NOW_MS)


async def test_the_details_of_a_record_are_shown_with_its_headers(reader: Reader) -> None:
    headers = (("trace", b"7f"), ("bytes", b"\xff"), ("none", None))
    record = Record(offset=0, timestamp=NOW_MS, key=b"ada", value=b"London", headers=headers)
    await reader.broker.served.produce("users", build_batch([record]), 1)

    code, shown, _ = await reader.get(b"ada", printing=Printing(is_detailed=True))

    assert code == 0
    assert b'"ada" = "London"  [trace="7f", bytes=0xff, none=(null)]' in shown


async def test_a_key_without_a_value_is_named_with_the_reason(reader: Reader) -> None:
    await reader.write({b"bob": b"Paris"})
    await reader.write({b"bob": None})

    for key, reason in ((b"bob", "deleted"), (b"carol", "not_found")):
        code, output, said = await reader.get(key)
        assert (code, output, said.count("\n")) == (1, b"", 1)
        assert said.startswith("kompakt: ")
        assert (await reader.get_json(key))["code"] == reason


async def test_several_keys_are_asked_for_together(reader: Reader) -> None:
    await reader.write({b"ada": b"London", b"bob": b"Paris"})
    await reader.write({b"bob": None, b"carol": b"Oslo"})

    code, output, said = await reader.get(
        b"carol", b"bob", b"ada", b"dave", printing=Printing(separator="=")
    )

    assert (code, output) == (1, b"carol=Oslo\nada=London\n")
    assert [line.split(": ")[1] for line in said.splitlines()] == ["bob", "dave"]


@pytest.mark.parametrize(
    "key", [b"", b".", b"..", b"a/b", b"a+b", b"%2F", b"\x00\xff", "é\n".encode(), b"k" * 5000]
)
async def test_a_key_may_be_any_bytes(reader: Reader, key: bytes) -> None:
    await reader.write({key: b"\x00\xff", b"other": b"x"})

    assert await reader.get(key, printing=Printing(is_raw=True)) == (0, b"\x00\xff", "")
    # In a batch, too.
    (first, second) = (await reader.get_json(key, b"other"))["records"]
    assert (first["offset"], second["offset"]) == (0, 1)


async def test_a_key_with_values_in_several_partitions_is_ambiguous(reader: Reader) -> None:
    await reader.write({b"ada": b"London"}, partition=0)
    await reader.write({b"ada": b"Paris"}, partition=1)

    code, output, said = await reader.get(b"ada", printing=Printing(separator="="))

    assert (code, sorted(output.splitlines())) == (0, [b"ada=London", b"ada=Paris"])
    assert "ada is ambiguous: partitions 0, 1 have a value" in said
    assert await reader.get(b"ada", partition=1) == (0, b"Paris\n", "")
    with pytest.raises(CommandFailed, match="name one with --partition"):
        await reader.get(b"ada", wait_seconds=0)


async def test_an_answer_includes_the_least_offset_or_is_refused(reader: Reader) -> None:
    await reader.write({b"ada": b"London", b"bob": b"Paris"})

    own = await reader.get(b"bob", partition=0, min_offset=1)
    assert own == (0, b"Paris\n", "")
    with pytest.raises(CallFailed) as refused:
        await reader.get(b"bob", partition=0, min_offset=2, wait_seconds=0)
    assert (refused.value.status, refused.value.code) == (503, "not_stable_yet")


async def test_waiting_ends_with_another_value(reader: Reader) -> None:
    await reader.write({b"ada": b"0"})
    waiting = asyncio.ensure_future(reader.get(b"ada", wait_seconds=WAIT_SECONDS_MAX))

    async with asyncio.timeout(PATIENCE_SECONDS):
        number = 0
        # The command may not have read the present value yet, so one write could come too early.
        while not waiting.done():
            number += 1
            await reader.write({b"ada": b"%d" % number})
            await asyncio.sleep(ROUNDS_PAUSE_SECONDS)

    code, output, said = await waiting
    assert (code, said) == (0, "")
    assert 0 < int(output) <= number


async def test_a_key_without_a_value_is_waited_for(reader: Reader) -> None:
    await reader.write({b"ada": None})
    waiting = asyncio.ensure_future(reader.get(b"bob", wait_seconds=WAIT_SECONDS_MAX))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not waiting.done():
            await reader.write({b"bob": b"here"})
            await asyncio.sleep(ROUNDS_PAUSE_SECONDS)
    assert await waiting == (0, b"here\n", "")

    with pytest.raises(CommandFailed, match="ada still has no value"):
        await reader.get(b"ada", wait_seconds=0)


async def test_waiting_in_vain_ends_with_1(reader: Reader) -> None:
    await reader.write({b"ada": b"London"})

    with pytest.raises(CommandFailed, match="users: ada still has the value of offset 0") as ended:
        await reader.get(b"ada", wait_seconds=0)
    assert ended.value.exit_code == 1


async def test_more_keys_than_a_request_may_have_are_split(reader: Reader) -> None:
    keys = [b"key %d" % number for number in range(KEYS_A_REQUEST + 1)]
    await reader.write({key: key[::-1] for key in keys})

    found = (await reader.get_json(*keys))["records"]

    assert [each["key"].encode() for each in found] == keys
    assert [each["value"].encode() for each in found] == [key[::-1] for key in keys]


async def test_values_too_large_for_one_answer_come_in_several(reader: Reader) -> None:
    keys = [b"key %d" % number for number in range(20)]
    for key in keys:
        await reader.write({key: key[-1:] * LARGE_BYTES})

    found = (await reader.get_json(*keys))["records"]

    assert [(each["value"][0], len(each["value"])) for each in found] == [
        (key[-1:].decode(), LARGE_BYTES) for key in keys
    ]


async def test_what_the_broker_refuses_ends_the_command(reader: Reader) -> None:
    await reader.broker.served.create("events", cleanup_policy="delete")

    for topic, reason in (("events", "not_compacted"), ("none", "unknown_topic")):
        for keys in ((b"ada",), (b"ada", b"bob")):
            with pytest.raises(CallFailed) as refused:
                await reader.get(*keys, topic=topic)
            assert (refused.value.exit_code, refused.value.code) == (1, reason)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"keys": [b"a"], "min_offset": 1}, "--min-offset is an offset of a --partition"),
        ({"keys": [b"a", b"b"], "wait_seconds": 1}, "take one key"),
        ({"keys": [b""], "wait_seconds": 1}, "take one key"),
        ({"keys": [b"a", b"b"], "partition": 0, "min_offset": 1}, "take one key"),
    ],
)
def test_options_that_do_not_go_together_are_refused(how: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CommandFailed, match=sentence) as refused:
        Lookup(topic="users", **how).check()
    assert refused.value.exit_code == 2


def test_requests_are_bounded_by_keys_and_by_bytes() -> None:
    half = b"x" * (KEY_BYTES_A_REQUEST // 2)
    small = [b"%d" % number for number in range(2 * KEYS_A_REQUEST + 1)]

    assert [len(keys) for keys in chunks(small)] == [KEYS_A_REQUEST, KEYS_A_REQUEST, 1]
    assert [len(keys) for keys in chunks([half, half, half + b"x", b"", half * 3])] == [2, 2, 1]
    assert list(chunks([half * 3])) == [[half * 3]]


async def test_values_that_name_their_schema_are_printed_decoded_unless_their_bytes_are_wanted(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    with FakeRegistry().served() as registry:
        fields = [{"name": "city", "type": "string"}]
        user = registry.add(json.dumps({"type": "record", "name": "User", "fields": fields}))
        data, strange = with_header(user, b"\x0cLondon"), with_header(99, b"\xff")
        async with steered_broker(tmp_path, schema_registry_url=registry.url) as broker:
            await broker.served.create("users", 2, cleanup_policy="compact")
            reader = Reader(broker, capsysbinary)
            await reader.write({b"ada": data, b"bob": strange})

            assert await reader.get(b"ada") == (0, b'{"city": "London"}\n', "")
            code, shown, said = await reader.get(b"ada", b"bob")
            assert (code, b'{"city": "London"}' in shown) == (0, True)
            assert "users: bob is not decoded: the registry at" in said
            raw = Printing(is_raw=True)
            assert await reader.get(b"ada", printing=raw, is_raw=True) == (0, data, "")
            found = await reader.get_json(b"ada", b"bob", is_raw=True)
            assert [each["value_encoding"] for each in found["records"]] == ["utf-8", "base64"]


async def test_a_snapshot_is_read_where_one_is_named(reader: Reader) -> None:
    await reader.write({b"ada": b"London", b"bob": b"Paris"})
    snapshots = reader.broker.served.broker.snapshots
    assert snapshots is not None
    made = await snapshots.create(Wanted(names=["users"]))
    await reader.write({b"ada": b"Rome", b"bob": None})

    assert await reader.get(b"ada", snapshot=made.id) == (0, b"London\n", "")
    code, output, _ = await reader.get(
        b"ada", b"bob", printing=Printing(separator="="), snapshot=made.id
    )
    assert (code, output) == (0, b"ada=London\nbob=Paris\n")
    with pytest.raises(CallFailed, match="there is no snapshot another with topic users"):
        await reader.get(b"ada", snapshot="another")


async def test_nothing_is_waited_for_in_a_snapshot(reader: Reader) -> None:
    with pytest.raises(CommandFailed, match="a snapshot never changes"):
        await reader.get(b"ada", snapshot="another", wait_seconds=1)
