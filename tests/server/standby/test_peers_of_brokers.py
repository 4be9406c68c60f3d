"""Two brokers of one cluster, of which one was promoted: which of them serves after a start."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from metrics import collector
from protocol.messages.produce import ProduceResponse
from protocol.wire.error_codes import ErrorCode
from replog.trigger import CompactionSettings
from server.client.pauses import Pacing
from server.config.broker_configs import BrokerConfigs
from server.metadata.log import MetadataLog
from server.metadata.reign import EPOCH_STEP
from server.net.listener import ListenError
from server.standby import peer_wait
from server.standby import peers as peers_module
from server.standby.fence import Fence, Waiting
from storage.files.errors import DiskError
from storage.files.local_files import LocalFileSystem
from tests.harness.broker_process import free_ports
from tests.harness.fencing import fence, lift, set_fence
from tests.harness.served_broker import (
    ServedBroker,
    batch_of,
    only_produced,
    produce_request,
    serving_broker,
)


class World:
    """The data directories and the internal listeners of two brokers, A and B."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = dict(zip("ab", free_ports(2), strict=True))

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[name]}"

    @asynccontextmanager
    async def running(self, name: str, **more: str) -> AsyncIterator[ServedBroker]:
        """Run a broker that asks the other one."""
        other = "b" if name == "a" else "a"
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:0,INTERNAL://{self.address(name)}",
            "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
            "inter_broker_listener_name": "INTERNAL",
            "standby_peers": self.address(other),
        } | more
        async with serving_broker(self.folder / name, **settings) as served:
            yield served

    async def make(self, *, steps: int = 1) -> None:
        """Let A create a topic; then let B have a copy of all, promoted `steps` times."""
        async with self.running("a") as served:
            await served.create("orders")
            await served.produce("orders", batch_of(3))
            term = served.broker.metadata_log.term
        shutil.copytree(self.folder / "a", self.folder / "b")
        self._promote(term + steps * EPOCH_STEP)

    def _promote(self, term: int) -> None:
        """Let B's metadata have a change of this term, as a promotion does."""
        log = MetadataLog(
            LocalFileSystem(), str(self.folder / "b" / "metadata"), CompactionSettings()
        )
        log.recover()
        log.replica.lead(term)
        log.append([["put", "/test/promoted", "", 0]])
        log.close()


@pytest.fixture
async def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    await world.make()
    return world


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    pacing = Pacing(first_s=0.02, max_s=0.1, least_share=1.0, most_share=1.0)
    monkeypatch.setattr(peer_wait, "STANDBY", pacing)
    monkeypatch.setattr(collector, "CACHE_SECONDS", 0.0)


def is_fenced_by(served: ServedBroker, address: str) -> bool:
    found = served.broker.fence
    return isinstance(found, Fence) and found.by.startswith(f"{address} (term ")


async def test_an_old_primary_that_comes_back_fences_itself_for_good(world: World) -> None:
    async with world.running("b") as promoted, world.running("a") as old:
        assert is_fenced_by(old, world.address("b"))
        assert list(old.broker.addresses) == ["INTERNAL"]
        term = promoted.broker.metadata_log.term
        assert old.broker.configs.own["broker.fenced.by"].endswith(f"(term {term})")
        assert old.broker.not_ready is not None
        assert world.address("b") in old.broker.not_ready
        assert not old.broker._restart.is_set()
    async with world.running("a") as old:
        assert is_fenced_by(old, world.address("b"))


async def test_the_promoted_broker_serves_when_the_old_primary_answers(world: World) -> None:
    async with world.running("a") as old, world.running("b") as promoted:
        assert old.broker.fence is None
        assert promoted.broker.fence is None


async def test_a_lift_alone_does_not_help_while_the_other_broker_leads(world: World) -> None:
    async with world.running("b"), world.running("a") as old:
        await lift(old)

        assert is_fenced_by(old, world.address("b"))


async def test_the_old_primary_serves_once_the_promoted_broker_is_fenced(world: World) -> None:
    """An operator goes back: fence the promoted broker, then lift the fence of the old primary."""
    async with world.running("b") as promoted, world.running("a") as old:
        await fence(promoted, world.address("a"))
        await lift(old)

        assert old.broker.fence is None
        await old.produce("orders")


@pytest.mark.parametrize("more", [{}, {"standby_on_lost_peer": "wait"}])
async def test_after_a_failback_the_old_primary_is_the_one_that_serves(
    tmp_path: Path, more: dict[str, str]
) -> None:
    """It was promoted itself, two steps above, and the other broker is fenced."""
    world = World(tmp_path)
    await world.make(steps=2)
    async with world.running("a") as other:
        await fence(other, world.address("b"))
        async with world.running("b", **more) as promoted:
            assert promoted.broker.fence is None


async def test_without_a_peer_in_reach_it_serves_by_default(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with world.running("a") as alone:
            assert alone.broker.fence is None
            await alone.produce("orders")

    expected = f"standby.peers: no broker answers at {world.address('b')} (Connection refused)"
    assert expected in [each.message for each in caplog.records]


async def test_with_wait_it_serves_nothing_until_a_peer_answers(world: World) -> None:
    async with world.running("b", standby_on_lost_peer="wait") as waiting:
        assert isinstance(waiting.broker.fence, Waiting)
        assert list(waiting.broker.addresses) == ["INTERNAL"]
        assert waiting.broker.not_ready is not None
        assert f"no broker answers at {world.address('a')}" in waiting.broker.not_ready
        client = await waiting.connect("INTERNAL")
        request = produce_request("orders", batch_of(1))
        refused = only_produced(await client.call(request, 9, ProduceResponse))
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert waiting.broker.configs.own == {}

        async with world.running("a") as old:
            await waiting.restarted()
            assert is_fenced_by(old, world.address("b"))
            assert waiting.broker.fence is None
            await waiting.produce("orders")


async def test_http_answers_of_a_broker_that_waits_say_why_and_that_it_may_end(
    world: World,
) -> None:
    settings = {"standby_on_lost_peer": "wait", "http_listener": "127.0.0.1:0"}
    async with world.running("a", **settings) as waiting, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{waiting.broker.http_port}"
        found = {}
        for path in ("/health/ready", "/v1/links", "/metrics"):
            async with session.get(url + path) as response:
                found[path] = response.status, await response.text()

    reason = f"no broker answers at {world.address('b')} (Connection refused)"
    for path in ("/health/ready", "/v1/links"):
        assert found[path][0] == 503
        assert reason in found[path][1]
    assert "kompakt_broker_fenced 0.0" in found["/metrics"][1]
    assert "kompakt_ready 0.0" in found["/metrics"][1]


async def test_an_old_primary_that_waits_fences_itself_when_the_promoted_broker_answers(
    world: World,
) -> None:
    async with world.running("a", standby_on_lost_peer="wait") as old, world.running("b"):
        await old.restarted()

        assert is_fenced_by(old, world.address("b"))


async def test_two_brokers_that_wait_find_each_other(world: World) -> None:
    """A power cut of both: the promoted one serves, the other one is fenced."""
    async with AsyncExitStack() as both:
        old = await both.enter_async_context(world.running("a", standby_on_lost_peer="wait"))
        promoted = await both.enter_async_context(world.running("b", standby_on_lost_peer="wait"))
        # B has found A, which waits, and serves at once.
        assert promoted.broker.fence is None
        await old.restarted()

        assert is_fenced_by(old, world.address("b"))
        await promoted.produce("orders")


async def test_a_broker_that_waits_does_not_count_itself(world: World) -> None:
    """Both brokers may have the same list, with both addresses."""
    peers = f"{world.address('a')},{world.address('b')}"
    async with world.running("a", standby_on_lost_peer="wait", standby_peers=peers) as waiting:
        first = waiting.broker.fence
        async with asyncio.timeout(60):
            while waiting.broker.fence is first:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

        assert isinstance(waiting.broker.fence, Waiting)
        assert "is it this broker itself" in waiting.broker.fence.reason
        assert not waiting.broker._restart.is_set()


async def test_a_broker_that_waits_can_be_fenced_by_hand_and_stops_asking(world: World) -> None:
    async with world.running("a", standby_on_lost_peer="wait") as waiting:
        assert (await set_fence(await waiting.connect("INTERNAL"), "by-hand"))[0] == 0
        await waiting.restarted()

        assert isinstance(waiting.broker.fence, Fence)
        assert waiting.broker.fence.by == "by-hand"
        assert waiting.broker.succession._peer_wait is None


async def test_a_fenced_broker_asks_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world.running("a") as served:
        await fence(served)

    async def fail(_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(peers_module.Peers, "ask", fail)
    async with world.running("a") as served:
        assert served.broker.is_fenced


async def test_a_full_disk_does_not_let_an_old_primary_serve(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object) -> None:
        raise DiskError("write", "node", 28, "No space left on device")

    async with world.running("b"):
        monkeypatch.setattr(BrokerConfigs, "_write", fail)
        async with world.running("a") as old:
            assert is_fenced_by(old, world.address("b"))
            assert "broker.fenced.by" not in old.broker.configs.own
    assert "cannot keep broker.fenced.by=" in caplog.text


async def test_a_file_of_properties_that_cannot_work_fails_the_start_with_the_reason(
    world: World, tmp_path: Path
) -> None:
    file = tmp_path / "peers.properties"
    file.write_text("security.protocol=NONE\n")

    with pytest.raises(ListenError, match=r"security.protocol=NONE is not one"):
        async with world.running("a", standby_peers_config=str(file)):
            pass

    async with world.running("a") as served:
        assert served.broker.fence is None
