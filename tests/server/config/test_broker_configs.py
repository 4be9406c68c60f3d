"""Dynamic broker properties: their scope, their persistence, and refused changes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from protocol.wire.error_codes import ErrorCode
from server.config.broker_configs import CLUSTER, PREFIX, BrokerConfigs, dynamic_properties
from server.config.changes import ConfigChange, Operation
from server.config.config import BrokerConfig
from server.config.standby_config import FENCED_BY
from server.metadata.embedded_store import EmbeddedMetadataStore
from server.metadata.store import Put
from server.topics.topic import TopicRefused
from storage.files.local_files import LocalFileSystem
from storage.formats.config_property import ConfigError, ConfigProperty, Value
from storage.log.directory import LogDirectory
from storage.log.log import PartitionLog
from tests.harness.served_broker import serving_broker

CLEANER_THREADS = "log.cleaner.threads"
RECOVERY_THREADS = "num.recovery.threads.per.data.dir"
RATE = "log.cleaner.io.max.bytes.per.second"
NODE = "1"


class Home:
    """The metadata stores on disk, and the configuration that a broker reads from them."""

    def __init__(self, path: Path, started_with: BrokerConfig) -> None:
        self.path = path
        self.started_with = started_with
        self.changes: list[BrokerConfig] = []

    async def start(self) -> BrokerConfigs:
        self.store = await EmbeddedMetadataStore.open(
            LocalFileSystem(), str(self.path / "metadata")
        )
        self.node_store = await EmbeddedMetadataStore.open(
            LocalFileSystem(), str(self.path / "node")
        )
        configs = BrokerConfigs(self.store, self.node_store, self.started_with, node_id=1)
        await configs.open()
        configs.when_changed(self.follow, check=self.check)
        return configs

    async def follow(self, config: BrokerConfig) -> None:
        self.changes.append(config)

    async def check(self, config: BrokerConfig) -> None:
        if config.log_defaults.retention_bytes == 13:
            raise ConfigError("thirteen is refused")

    async def restart(self) -> BrokerConfigs:
        await self.store.close()
        await self.node_store.close()
        return await self.start()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, BrokerConfig.from_texts({RATE: "1000"}))


async def alter(
    configs: BrokerConfigs,
    name: str,
    *changes: tuple[str, str | None],
    replaces: bool = False,
    validate_only: bool = False,
) -> TopicRefused | None:
    """Returns changes that set each property, or delete it if its value is None."""
    return await configs.alter(
        name,
        [
            ConfigChange(name=each, operation=Operation.DELETE if text is None else 0, value=text)
            for each, text in changes
        ],
        replaces=replaces,
        validate_only=validate_only,
    )


def rate_of(configs: BrokerConfigs) -> float:
    return configs.config.log_cleaner_io_max_bytes_per_second


async def test_a_change_holds_at_once_and_after_a_restart(home: Home) -> None:
    configs = await home.start()

    assert await alter(configs, NODE, (RATE, "5000")) is None

    assert rate_of(configs) == 5000
    assert [each.cleaner_settings().io_rates.total for each in home.changes] == [5000]
    assert rate_of(await home.restart()) == 5000


async def test_the_brokers_own_setting_goes_before_that_of_the_cluster(home: Home) -> None:
    configs = await home.start()
    await alter(configs, CLUSTER, (RATE, "3000"))
    assert rate_of(configs) == 3000
    await alter(configs, NODE, (RATE, "5000"))
    await alter(configs, CLUSTER, (RATE, "4000"))
    assert rate_of(configs) == 5000

    await alter(configs, NODE, (RATE, None))
    assert rate_of(configs) == 4000

    await alter(configs, CLUSTER, (RATE, None))
    assert rate_of(configs) == 1000, "what the broker was started with"


async def test_a_replacement_removes_settings_that_it_does_not_name(home: Home) -> None:
    configs = await home.start()
    await alter(configs, NODE, (RATE, "5000"), ("log.cleaner.backoff.ms", "7"))

    await alter(configs, NODE, ("log.cleaner.backoff.ms", "8"), replaces=True)

    assert configs.own == {"log.cleaner.backoff.ms": "8"}
    assert rate_of(configs) == 1000


async def test_a_replacement_keeps_the_fence_unless_it_names_it(home: Home) -> None:
    configs = await home.start()
    await alter(configs, NODE, (FENCED_BY, "broker-b"), (RATE, "5000"))

    await alter(configs, NODE, ("log.cleaner.backoff.ms", "8"), replaces=True)

    assert configs.own == {"log.cleaner.backoff.ms": "8", FENCED_BY: "broker-b"}
    await alter(configs, NODE, (FENCED_BY, ""), replaces=True)
    assert configs.config.broker_fenced_by == ""


@pytest.mark.parametrize(
    ("name", "change", "code", "text"),
    [
        pytest.param(
            NODE, ("num.partitions", "3"), ErrorCode.INVALID_REQUEST, "dynamically", id="read_only"
        ),
        pytest.param(
            NODE, ("log.retention.hours", "3"), ErrorCode.INVALID_REQUEST, "dynamically", id="weak"
        ),
        pytest.param(
            NODE, ("log.segment.bytes", "3"), ErrorCode.INVALID_REQUEST, "at least", id="topics"
        ),
        pytest.param(
            NODE, ("log.retention.bytes", "13"), ErrorCode.INVALID_REQUEST, "thirteen", id="checked"
        ),
        pytest.param(NODE, ("no.such", "3"), ErrorCode.INVALID_CONFIG, "Unknown", id="unknown"),
        pytest.param(NODE, (RATE, "0"), ErrorCode.INVALID_REQUEST, "at least 1", id="out_of_range"),
        pytest.param(
            NODE, (RATE, "fast"), ErrorCode.INVALID_REQUEST, "Not a number", id="no_number"
        ),
        pytest.param("7", (RATE, "9"), ErrorCode.INVALID_REQUEST, "expected 1", id="other_broker"),
        pytest.param(
            CLUSTER,
            (FENCED_BY, "b"),
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs at default cluster level: broker.fenced.by",
            id="of_one_broker",
        ),
    ],
)
async def test_an_invalid_setting_is_refused_and_changes_nothing(
    home: Home, name: str, change: tuple[str, str], code: ErrorCode, text: str
) -> None:
    configs = await home.start()
    revision = home.node_store.revision

    fault = await alter(configs, name, change, ("log.cleaner.backoff.ms", "1"))

    assert fault is not None
    assert fault.error_code is code
    assert text in fault.message
    assert (configs.own, configs.cluster, home.changes) == ({}, {}, [])
    assert home.node_store.revision == revision


@pytest.mark.parametrize("name", sorted(dynamic_properties()))
async def test_every_dynamic_property_is_read_again_after_changes(home: Home, name: str) -> None:
    """Some part that `Broker` notifies must read every dynamic property again after a change."""
    configs = await home.start()
    before = watched(configs.config)
    declared, now = next(row for row in configs.config.rows() if row[0].name == name)

    assert await alter(configs, NODE, (name, another(now, declared))) is None

    assert watched(configs.config) != before


def another(now: Value, declared: ConfigProperty) -> str | None:
    """Returns the text of another value that the property allows."""
    if isinstance(now, bool):
        return declared.format(not now)
    if declared.name == CLEANER_THREADS:
        return declared.format(2 * int(str(now)))
    if isinstance(now, int | float) and not declared.choices:
        least = declared.at_least or 0
        return declared.format(type(now)(least if now != least else least + 1))
    if declared.name == "max.connections.per.ip.overrides":
        return "10.0.0.7:500"
    if declared.name == "log.cleaner.hold.groups":
        return "billing"
    if declared.name == "log.cleaner.window":
        return "22:00-06:00"
    if declared.name == FENCED_BY:
        return "broker-b"
    return next(choice for choice in declared.choices if choice != declared.format(now))


def watched(config: BrokerConfig) -> tuple[object, ...]:
    return (
        config.log_defaults,
        config.max_connections,
        config.producer_id_expiration_ms,
        config.max_connections_per_ip,
        config.max_connections_per_ip_overrides,
        config.max_connection_creation_rate,
        config.cleaner_settings(),
        config.log_cleaner_latency_guard_enable,
        config.log_cleaner_latency_guard_deadline_ms,
        config.log_cleaner_disk_pressure_free_bytes,
        config.log_cleaner_events_enable,
        config.key_lookup_bytes_max,
        # After a restart; of the second one, the broker starts again by itself.
        config.num_recovery_threads_per_data_dir,
        config.broker_fenced_by,
    )


@pytest.mark.parametrize(
    ("name", "now", "text", "reason"),
    [
        (CLEANER_THREADS, 1, "0", "Log cleaner threads should be at least 1"),
        (CLEANER_THREADS, 1, "3", "cannot be increased to more than double the current value 1"),
        (CLEANER_THREADS, 0, "1", "cannot be increased to more than double the current value 0"),
        (CLEANER_THREADS, 4, "1", "cannot be reduced to less than half the current value 4"),
        (RECOVERY_THREADS, 2, "5", "should not be greater than double the current value 2"),
        (RECOVERY_THREADS, 4, "1", "should be at least half the current value 4"),
        (RECOVERY_THREADS, 4, "0", "Value must be at least 1"),
    ],
)
async def test_threads_become_twice_or_half_as_many_at_most(
    tmp_path: Path, name: str, now: int, text: str, reason: str
) -> None:
    configs = await Home(tmp_path, BrokerConfig.from_texts({name: str(now)})).start()

    fault = await alter(configs, NODE, (name, text))

    assert fault is not None
    assert (fault.error_code, configs.own) == (ErrorCode.INVALID_REQUEST, {})
    assert reason in fault.message


@pytest.mark.parametrize("name", [CLEANER_THREADS, RECOVERY_THREADS])
async def test_threads_are_bounded_by_how_many_there_are_now(tmp_path: Path, name: str) -> None:
    configs = await Home(tmp_path, BrokerConfig.from_texts({name: "2"})).start()

    for text in ("4", "8", "5", "2"):
        assert await alter(configs, NODE, (name, text)) is None
    assert await alter(configs, CLUSTER, (name, "1")) is None, "the broker's own goes before it"
    await alter(configs, NODE, (name, "3"))
    fault = await alter(configs, NODE, (name, "8"))
    assert fault is not None

    assert await alter(configs, NODE, (name, None)) is None
    assert dict(configs.own) == {}


async def test_a_change_with_validate_only_changes_nothing(home: Home) -> None:
    configs = await home.start()

    assert await alter(configs, NODE, (RATE, "5000"), validate_only=True) is None

    assert (rate_of(configs), home.changes) == (1000, [])


async def test_a_stored_setting_that_this_release_does_not_accept_is_ignored(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    await home.start()
    text = '{"of.the.future":"1","log.cleaner.io.max.bytes.per.second":"5000"}'
    await home.node_store.txn((), [Put(key=PREFIX + NODE, value=text)])

    configs = await home.restart()

    assert rate_of(configs) == 5000
    assert "of.the.future" in caplog.text


async def test_librdkafka_sets_a_broker_property_and_reads_back_value_and_source(
    tmp_path: Path,
) -> None:
    def change(admin: AdminClient, name: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        wanted = ConfigResource(ResourceType.BROKER, name, incremental_configs=[entry])
        for future in admin.incremental_alter_configs([wanted]).values():
            future.result(10)

    def run(servers: str) -> None:
        admin = AdminClient({"bootstrap.servers": servers})
        change(admin, "1", RATE, "1e6")
        (described,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
        entry = described.result(10)[RATE]
        # 2: DYNAMIC_BROKER_CONFIG.
        assert (entry.value, entry.source, entry.is_read_only) == ("1000000.0", 2, False)
        with pytest.raises(KafkaException, match="Cannot update these configs dynamically"):
            change(admin, "1", "node.id", "2")

    async with serving_broker(tmp_path) as served:
        host, port = served.broker.addresses["PLAINTEXT"]
        await asyncio.to_thread(run, f"{host}:{port}")
        assert served.broker.configs.config.cleaner_settings().io_rates.total == 1e6


async def test_a_running_pass_follows_a_changed_budget(tmp_path: Path) -> None:
    settings = {
        "log_cleaner_enable": "true",
        "log_cleaner_io_max_bytes_per_second": "1",
        "log_cleaner_backoff_ms": "10",
    }
    async with serving_broker(tmp_path, **settings) as served:
        await served.create("table", cleanup_policy="compact")
        for _ in range(3):
            await served.produce("table")
        log = served.log("table")
        log.roll(served.broker.clock.now_ms())
        await until(lambda: served.broker.cleaner_counts.running == 1)
        assert log.clean_offset == 0

        assert await alter(served.broker.configs, "1", (RATE, "1e9")) is None

        await until(lambda: log.clean_offset == log.high_watermark)


async def test_more_cleaner_threads_run_more_passes_in_parallel_and_show_in_metrics(
    tmp_path: Path,
) -> None:
    settings = {
        "log_cleaner_enable": "true",
        "log_cleaner_io_max_bytes_per_second": "1",
        "log_cleaner_backoff_ms": "10",
    }
    async with serving_broker(tmp_path, **settings) as served:
        for topic in ("one", "two"):
            await served.create(topic, cleanup_policy="compact")
            for _ in range(3):
                await served.produce(topic)
            served.log(topic).roll(served.broker.clock.now_ms())
        counts = served.broker.cleaner_counts
        await until(lambda: counts.running == 1)

        assert await alter(served.broker.configs, NODE, (CLEANER_THREADS, "2")) is None

        await until(lambda: counts.running == 2)
        assert counts.threads == 2
        await alter(served.broker.configs, NODE, (RATE, "1e9"))

    async with serving_broker(tmp_path, log_cleaner_enable="true") as served:
        assert served.broker.cleaner_counts.threads == 2, "a restart keeps them"


async def test_more_recovery_threads_count_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_broker(tmp_path, num_recovery_threads_per_data_dir="1") as served:
        await served.create("orders", partitions=2)
        assert await alter(served.broker.configs, NODE, (RECOVERY_THREADS, "2")) is None
        data = Path(served.broker.config.data_directories[0])
    (data / ".clean-shutdown").unlink()
    together = threading.Barrier(2, timeout=20)
    open_log = LogDirectory.open_log

    def opened_together(*arguments: Any, **named: Any) -> PartitionLog:
        together.wait()
        return open_log(*arguments, **named)

    monkeypatch.setattr(LogDirectory, "open_log", opened_together)
    async with serving_broker(tmp_path, num_recovery_threads_per_data_dir="1") as served:
        assert served.log("orders").offline_reason is None


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - threads set no event
            await asyncio.sleep(0.005)
