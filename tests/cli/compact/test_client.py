"""Which topic or partition a command's TARGET means, with a whole broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cli.compact.client import STANDBY_ROOT, CallFailed, CompactionClient, connected
from tests.harness.broker_process import free_ports
from tests.harness.steered_broker import steered_broker


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[CompactionClient]:
    async with steered_broker(tmp_path) as broker:
        for name, count in (("orders", 2), ("orders-1", 1), ("few", 2)):
            await broker.served.create(name, count, cleanup_policy="compact")
        async with connected(broker.url) as connection:
            yield connection


async def test_an_endpoint_that_is_no_standbys_is_named(tmp_path: Path) -> None:
    async with (
        steered_broker(tmp_path) as broker,
        connected(broker.url, root=STANDBY_ROOT) as connection,
    ):
        with pytest.raises(CallFailed, match="is not a standby's: that is its --http"):
            await connection.call("GET", "")


async def test_a_standby_that_does_not_answer_is_called_so() -> None:
    (port,) = free_ports(1)
    async with connected(f"http://127.0.0.1:{port}", root=STANDBY_ROOT) as connection:
        with pytest.raises(CallFailed, match=r"^no standby answers .* is that its --http\?"):
            await connection.call("GET", "")


async def partitions(client: CompactionClient, target: str) -> list[tuple[str, int]]:
    answer = await client.call_on("GET", target, "/explain")
    return [(each["topic"], each["partition"]) for each in answer["partitions"]]


async def test_a_target_is_a_topic_or_one_of_its_partitions(client: CompactionClient) -> None:
    assert await partitions(client, "few") == [("few", 0), ("few", 1)]
    assert await partitions(client, "few-1") == [("few", 1)]


async def test_a_topic_of_that_name_comes_before_a_partition(client: CompactionClient) -> None:
    assert await partitions(client, "orders-1") == [("orders-1", 0)]
    assert await partitions(client, "orders-0") == [("orders", 0)]


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("nope", "there is no topic nope"),
        ("nope-3", "there is no topic nope-3"),
        ("few-7", "topic few has no partition 7"),
        ("fwe-1", "there is no topic fwe-1"),
    ],
)
async def test_the_error_is_about_what_the_user_typed(
    client: CompactionClient, target: str, sentence: str
) -> None:
    with pytest.raises(CallFailed, match=f"^{sentence}") as failed:
        await partitions(client, target)
    assert failed.value.status == 404
