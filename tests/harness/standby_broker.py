"""A standby's broker in the test's own loop and its source, which can be fenced, lifted and followed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from cli.standby.run import Standby, StandbyOptions
from cli.standby.whole_broker import standby_link
from server.broker import Broker
from server.client.access import Access
from server.config.config import BrokerConfig
from server.config.listeners.addresses import HttpListener
from server.replication.link_spec import STANDBY_LINK
from server.replication.mirror import MirrorFacts
from server.runtime.clock import SystemClock
from server.runtime.signals import StopSignal
from storage.files.local_files import LocalFileSystem
from storage.log.log import PartitionLog
from tests.harness.broker_process import free_ports
from tests.harness.raw_client import RawClient
from tests.harness.served_broker import ServedBroker, serving_broker

SECONDS_MAX = 300

Json = dict[str, Any]


@asynccontextmanager
async def serving_source(directory: Path, **properties: str) -> AsyncIterator[ServedBroker]:
    """Run a broker whose internal listener has the same address after each start."""
    clients, internal = free_ports(2)
    listeners = {
        "listeners": f"PLAINTEXT://127.0.0.1:{clients},INTERNAL://127.0.0.1:{internal}",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
        "inter_broker_listener_name": "INTERNAL",
        "offsets_topic_num_partitions": "1",
        "transaction_state_log_num_partitions": "1",
    }
    async with serving_broker(directory, **{**listeners, **properties}) as served:
        yield served


@asynccontextmanager
async def standby_of(
    source: ServedBroker,
    directory: Path,
    *,
    name: str = "s",
    has_led: bool = False,
    properties: Mapping[str, str] | None = None,
) -> AsyncIterator[Broker]:
    """Run a broker that has only the link of a standby.

    Args:
        name: by which the source knows it.
        has_led: whether its logs may have records of their own.
        properties: of the standby, by their names.
    """
    host, port = source.broker.addresses["INTERNAL"]
    spec = standby_link(name, f"{host}:{port}", Access(), has_led=has_led)
    texts = {"log.dirs": str(directory), "http.listener": "", "log.cleaner.enable": "false"}
    texts["node.id"] = "2"
    texts |= properties or {}
    config = BrokerConfig.from_texts(texts | {"cluster.id": source.broker.node.cluster_id})
    broker = Broker(config, files=LocalFileSystem(), clock=SystemClock(), standby=spec)
    try:
        await broker.start()
        yield broker
    finally:
        await broker.stop()


def mirrors(standby: Broker) -> list[MirrorFacts]:
    """Returns the state of each mirrored partition."""
    return standby.replication.mirror_facts(STANDBY_LINK)


def log_in(standby: Broker, topic: str, partition: int = 0) -> PartitionLog | None:
    """Returns a mirror's log; None if it does not exist yet."""
    found = standby.topics.get(topic)
    if found is None or partition >= len(found.partitions):
        return None
    log = found.partitions[partition]
    assert isinstance(log, PartitionLog)
    return log


async def until(is_true: Callable[[], bool], what: Callable[[], object] = str) -> None:
    """Wait until something is true."""
    try:
        async with asyncio.timeout(SECONDS_MAX):
            # The other side is a broker in the same loop, whose events a test cannot see.
            while not is_true():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(what()) from None


async def until_copied(standby: Broker, topic: str, end: int, partition: int = 0) -> PartitionLog:
    """Wait until a mirror has everything up to an end, durably. Returns its log."""

    def has_it() -> bool:
        log = log_in(standby, topic, partition)
        return log is not None and log.high_watermark >= end

    await until(has_it, lambda: (mirrors(standby), standby.replication.reason_of(STANDBY_LINK)))
    log = log_in(standby, topic, partition)
    assert log is not None
    return log


class RunningStandby:
    """A whole `kompakt standby` in the test's own loop. Once it is promoted, it serves at `address`."""

    def __init__(self, data: Path, leader: str, node_id: int, *, rejoins: bool) -> None:
        self.http_port, self.port = free_ports(2)
        self.address = ("127.0.0.1", self.port)
        self._signal = StopSignal()
        self._clients: list[RawClient] = []
        texts = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(data),
            "http.listener": "",
            "log.cleaner.enable": "false",
            "node.id": str(node_id),
        }
        self._options = StandbyOptions(
            leader=leader,
            data=data,
            http=HttpListener(host="127.0.0.1", port=self.http_port),
            is_json=True,
            config=BrokerConfig.from_texts(texts),
            rejoins=rejoins,
        )
        self._task: asyncio.Task[None] = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with AsyncExitStack() as stack:
            promoted = await Standby(self._options, self._signal, stack).run()
            if promoted is not None:
                assert self._options.config is not None
                await promoted.serve(self._options.config, self._signal)

    async def status(self) -> Json:
        """Returns what it says about itself, once it answers."""
        while True:
            assert not self._task.done(), self._task.exception()
            try:
                return (await self._called("GET", "", {}))[1]
            except aiohttp.ClientError:
                await asyncio.sleep(0.01)

    async def promote(self, *, force: bool = False, wait_seconds: float = 60) -> tuple[int, Json]:
        """Ask it to take over. Returns the HTTP status and the answer."""
        asked = {"force": force, "wait_seconds": wait_seconds}
        return await self._called("POST", "/promotion", asked)

    async def until(self, holds: Callable[[Json], bool]) -> Json:
        """Wait until its status is so. Returns it."""
        async with asyncio.timeout(SECONDS_MAX):
            while not holds(found := await self.status()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return found

    async def until_ready(self) -> None:
        """Wait until it has what the source had a moment ago."""
        await self.until(lambda it: it["not_ready"] is None and it["mirrors"] is not None)

    async def connect(self) -> RawClient:
        """Returns a connection to the promoted broker."""
        client = await RawClient.connect(*self.address)
        self._clients.append(client)
        return client

    async def ended(self) -> None:
        """Wait until it ends by itself. Raises CommandFailed if it cannot continue."""
        await self._task

    async def stop(self) -> None:
        """Stop it as a signal does."""
        for client in self._clients:
            client.close()
        self._signal.set()
        await self._task

    async def _called(self, method: str, path: str, body: Json) -> tuple[int, Json]:
        url = f"http://127.0.0.1:{self.http_port}/v1/standby{path}"
        timeout = aiohttp.ClientTimeout(total=SECONDS_MAX)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(method, url, json=body) as response,
        ):
            return response.status, await response.json()


@asynccontextmanager
async def running_standby(
    source: ServedBroker, data: Path, *, node_id: int = 2, rejoins: bool = False
) -> AsyncIterator[RunningStandby]:
    """Run `kompakt standby` of a source on a directory, which is a broker's if it rejoins."""
    host, port = source.broker.addresses["INTERNAL"]
    standby = RunningStandby(data, f"{host}:{port}", node_id, rejoins=rejoins)
    try:
        yield standby
    finally:
        await standby.stop()


async def promoted_from(
    source: ServedBroker, standby: RunningStandby, **asked: Any
) -> tuple[int, Json]:
    """Let a standby take over from a source, which starts again fenced. Returns the answer."""
    promotion = asyncio.create_task(standby.promote(**asked))
    restart = asyncio.create_task(source.restarted())
    await asyncio.wait((promotion, restart), return_when=asyncio.FIRST_COMPLETED)
    if promotion.done():
        restart.cancel()
    return await promotion
