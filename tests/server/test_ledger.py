"""The ledger of a running broker, as an operator sees it: `compact ledger`, and `explain --key`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cli.commands import run_command
from storage.files.paths import LOG
from tests.harness.served_broker import batch_of
from tests.harness.steered_broker import SteeredBroker, steered_broker

Json = dict[str, Any]


class Operator:
    """Types commands, at a broker or over its directory."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *where: str) -> None:
        self._capsys = capsys
        self._where = where

    async def type(self, *arguments: str) -> tuple[int, str]:
        """Returns the exit code and what was printed."""
        command = ["compact", *arguments, *self._where]
        code = await asyncio.to_thread(run_command, command)
        printed = self._capsys.readouterr()
        return code, printed.out + printed.err

    async def json(self, *arguments: str) -> Json:
        """Returns the JSON of a command that must succeed."""
        code, text = await self.type(*arguments, "--json")
        assert code == 0, text
        answer: Json = json.loads(text)
        return answer


def damage(segment: Path) -> None:
    segment.write_bytes(segment.read_bytes()[:-1] + b"?")


async def clean(broker: SteeredBroker) -> Json:
    job = await broker.finished(await broker.post("/topics/orders/now"))
    part: Json = job["partitions"][0]
    assert part["report"]["groups"] == 1, part
    return part


async def test_an_operator_follows_passes_in_the_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    anchor = tmp_path / "anchor.json"
    async with steered_broker(tmp_path) as broker:
        operator = Operator(capsys, "--url", broker.url)
        data_dir = broker.served.broker.directories[0].path
        await broker.served.create("orders", cleanup_policy="compact", delete_retention_ms="0")
        assert await operator.type("ledger", "show") == (
            0,
            "the ledger has no pass that changed a log\n",
        )
        await broker.produce_dirty("orders")
        done = await clean(broker)

        (shown,) = (await operator.json("ledger", "show", "orders-0"))["passes"]
        assert (shown["pass_id"], shown["result"]) == (done["pass_id"], "completed")
        (group,) = shown["groups"]
        assert (group["outcome"], group["start_offset"], group["dropped"]) == ("swapped", 0, 2)
        assert (await operator.json("ledger", "at", "orders-0", "1"))["passes"] == [shown]
        assert (await operator.json("ledger", "at", "orders-0", "9"))["passes"] == []
        code, table = await operator.type("ledger", "show")
        assert code == 0
        assert "orders-0" in table
        assert done["pass_id"] in table

        anchor.write_text(json.dumps(await operator.json("ledger", "head")))
        code, text = await operator.type("ledger", "verify", "--anchor", str(anchor))
        assert code == 0, text
        assert "entries 0 to 2: sound" in text
        assert "1 segment on disk that passes wrote: 1 with the digest" in text
        assert "1 anchor found in the chain" in text

        # Which pass took the older records of a key?
        (part,) = (await operator.json("explain", "orders-0", "--key", "key"))["partitions"]
        (sentence,) = part["key"]["departures"]
        assert f"at the latest with pass {done['pass_id']}" in sentence
        await broker.served.broker.topics.alter(
            "orders", lambda old, _: {**old, "min.segment.dead.ratio": "0.5"}
        )
        (part,) = (await operator.json("explain", "orders-0", "--key", "key"))["partitions"]
        assert "at the latest" not in part["key"]["departures"][0], "a pass may spare a segment"
        await broker.served.produce("orders", batch_of(1, key=b"other"))
        (part,) = (await operator.json("explain", "orders-0", "--key", "none"))["partitions"]
        assert "it stores no keys" in part["key"]["departures"][0]

        segment = Path(broker.served.log("orders").segments[0].path(LOG))

    offline = Operator(capsys, "--data-dir", data_dir)
    verified = await offline.json("ledger", "verify", "--anchor", str(anchor))
    assert verified["is_sound"]
    assert (await offline.json("ledger", "show"))["passes"] == [shown]
    assert (await offline.json("ledger", "head"))["heads"] == json.loads(anchor.read_text())[
        "heads"
    ]

    damage(segment)
    code, text = await offline.type("ledger", "verify")
    assert code == 1
    assert "NOT SOUND" in text
    assert "its bytes are not those that the pass wrote" in text


async def test_a_broker_without_the_ledger_leaves_no_file(tmp_path: Path) -> None:
    async with steered_broker(tmp_path, log_cleaner_ledger_enable="false") as broker:
        await broker.served.create("orders", cleanup_policy="compact")
        await broker.produce_dirty("orders")
        await clean(broker)
        directory = Path(broker.served.broker.directories[0].path)

        assert not (directory / "cleaning-ledger").exists()
        assert not (directory / "signing.key").exists()


async def test_a_time_without_the_ledger_is_recorded(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await broker.served.create("orders", cleanup_policy="compact")
        await broker.produce_dirty("orders")
        await clean(broker)
    async with steered_broker(tmp_path, log_cleaner_ledger_enable="false") as broker:
        await broker.produce_dirty("orders")
        await clean(broker)
        job = await broker.post("/ledger/verify")
        while not job["is_over"]:
            await asyncio.sleep(0.01)
            job = await broker.get(f"/ledger/verify/{job['id']}")
        (ledger,) = job["ledgers"]

    assert job["is_sound"], ledger["findings"]
    assert ledger["without_ledger"] == 1


@pytest.mark.parametrize("query", ["?limit=x", "?offset=-1", "?partition=one"])
async def test_an_invalid_number_is_refused(tmp_path: Path, query: str) -> None:
    async with steered_broker(tmp_path) as broker:
        status, answer = await broker.ask("GET", f"/ledger{query}")
        assert status == 400
        assert "is a number from" in answer["error"]
        assert (await broker.ask("GET", "/ledger/verify/7"))[0] == 404
        assert (await broker.ask("POST", "/ledger/verify", data=b"{}"))[0] == 400
