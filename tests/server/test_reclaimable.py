"""How much passes would free, in a whole broker: status, explanations, metrics and commands say the
same."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from cli.compact.output import print_explanations, print_status
from metrics import collector
from protocol.records.record_batch import Record, build_batch
from storage.log.log import PartitionLog
from tests.harness.scraped_world import samples_in
from tests.harness.served_broker import NOW_MS
from tests.harness.steered_broker import Json, SteeredBroker, steered_broker

EAGER = {"log_cleaner_backoff_ms": "20"}
KEYS = 200
"""With twenty, each pair in one register of the sketch would be more than twice the stated error."""


async def half_superseded(broker: SteeredBroker, **configs: str) -> PartitionLog:
    """Create a topic with two sealed segments of the same keys, which waits for no pass."""
    config = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "1.0", **configs}
    await broker.served.create("orders", 1, **config)
    log = broker.served.log("orders")
    for _ in range(2):
        records = [
            Record(offset=number, timestamp=NOW_MS, key=b"%d" % number, value=b"v" * 100)
            for number in range(KEYS)
        ]
        await broker.served.produce("orders", build_batch(records))
        log.roll(NOW_MS)
    return log


async def until_counted(broker: SteeredBroker) -> Json:
    """Returns the broker's status once the keys of both segments were counted."""
    async with asyncio.timeout(60):
        while True:
            status = await broker.get()
            counted = status["reclaimable"]["partitions"]
            if [each["reclaimable"]["end_offset"] for each in counted] == [2 * KEYS]:
                return status
            await asyncio.sleep(0.02)


async def test_status_explain_metrics_and_commands_say_what_a_pass_would_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(collector, "CACHE_SECONDS", 0.0)
    async with steered_broker(tmp_path, **EAGER) as broker:
        log = await half_superseded(broker)
        status = await until_counted(broker)
        answer = await broker.get("/topics/orders/partitions/0/explain")
        url = f"http://127.0.0.1:{broker.served.broker.http_port}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            samples = samples_in(await response.text())
        freed = await broker.finished(await broker.post("/topics/orders/now"))
        after = await broker.get()

    (listed,) = status["reclaimable"]["partitions"]
    found = listed["reclaimable"]
    assert (listed["topic"], listed["partition"], found["end_offset"]) == ("orders", 0, 2 * KEYS)
    assert found["share"] == pytest.approx(0.5, abs=4 * found["share_error"])
    (explanation,) = answer["partitions"]
    assert explanation["reclaimable"] == found
    assert samples["kompakt_log_reclaimable_bytes", "orders", "0"] == found["bytes"]
    assert samples["kompakt_topic_reclaimable_bytes", "orders"] == found["bytes"]
    assert samples["kompakt_log_reclaimable_error_bytes", "orders", "0"] == found["bytes_error"]
    assert samples["kompakt_topic_reclaimable_error_bytes", "orders"] == found["bytes_error"]
    report = freed["partitions"][0]["report"]
    assert report["sidecars_built"] == 0, "they were made ahead"
    went = report["bytes_before"] - report["bytes_after"]
    assert went == pytest.approx(found["bytes"], abs=4 * found["bytes_error"] + 1500)
    assert after["reclaimable"]["partitions_count"] == 0
    assert log.clean_offset == 2 * KEYS
    print_status(status)
    print_explanations(answer)
    out = capsys.readouterr().out
    assert "passes would free about 2" in out
    assert "in 1 counted partition" in out
    assert "a pass would free about 2" in out
    assert f"below offset {2 * KEYS}" in out


async def test_where_it_is_off_nothing_is_counted(tmp_path: Path) -> None:
    properties = {**EAGER, "log_cleaner_index_ahead_enable": "false"}
    async with steered_broker(tmp_path, **properties) as broker:
        await half_superseded(broker)
        await broker.finished(await broker.post("/topics/orders/plan"))
        status = await broker.get()
        answer = await broker.get("/topics/orders/partitions/0/explain")

    nothing = {"partitions_count": 0, "bytes": 0, "bytes_error": 0, "partitions": []}
    assert status["reclaimable"] == nothing
    assert answer["partitions"][0]["reclaimable"] is None
