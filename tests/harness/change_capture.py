"""Change data capture as companies run it, each part a process that a test may kill.

    PostgreSQL -- pgoutput --> Debezium in a worker of Kafka Connect -- Avro --> compacted topics
                                   |                                                 |
                                   +-- schemas --> Apicurio Registry -- topics --> broker

The connector has the settings that Debezium's documentation advises for Avro, and else its defaults: a
numeric is a decimal of the same precision, a timestamptz is text in ISO 8601.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from pipeline.spark.jars import jars
from tests.harness.apicurio_registry import running_registry
from tests.harness.broker_process import BrokerProcess, free_ports
from tests.harness.connect_worker import MAIN_CLASS, ConnectWorker
from tests.harness.connect_worker import PINS as CONNECT_PINS
from tests.harness.group_run import until
from tests.harness.java_program import SOURCES, java_command
from tests.harness.postgres import DATABASE, USER, Postgres
from tests.harness.process_tree import below, kill, wait_until_gone

PINS = SOURCES / "debezium-3.6"
CONNECTOR = "shop"
"""The name of the connector, of its replication slot, and the prefix of its topics."""
SIGNALS = "signals"
"""The table through which Debezium takes orders; it is captured, too."""
TRUNCATED = "carts"
"""The table that is truncated. Debezium's event of that has no key, so the topic is not compacted."""
PARTITIONS = 2
QUICK_GROUPS = {"group.min.session.timeout.ms": 1_000, "group.initial.rebalance.delay.ms": 0}
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
RUNNING = ["RUNNING", "RUNNING"]
"""The states of a connector and its one task."""


class CaptureWorker(ConnectWorker):
    """A worker of Kafka Connect that has Debezium and Apicurio's converter on its class path."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        super().__init__(folder, bootstrap)
        java, *words = java_command(MAIN_CLASS, [*jars(CONNECT_PINS), *jars(PINS)])
        self._command = [java, QUIET, *words]

    def source_position(self, connector: str) -> dict[str, Any]:
        """Returns the position in the source whose records the broker has all acknowledged."""
        found = self._asked(f"/connectors/{connector}/offsets") or {"offsets": []}
        return next((dict(each["offset"]) for each in found["offsets"]), {})

    def restart_failed_tasks(self, connector: str) -> None:
        """Do what an operator does once the cause is gone."""
        options = "includeTasks=true&onlyFailed=true"
        self._request("POST", f"/connectors/{connector}/restart?{options}")


class Registry:
    """An Apicurio Registry that may be killed, and started again on the same port."""

    def __init__(self, bootstrap: str) -> None:
        (self.port,) = free_ports(1)
        self.url = ""
        """That of the API of Confluent's, once it has started."""
        self._bootstrap = bootstrap
        self._running: AbstractContextManager[str] | None = None

    def start(self) -> None:
        self._running = running_registry(self._bootstrap, self.port)
        self.url = self._running.__enter__()

    def kill(self) -> None:
        """Send SIGKILL."""
        word = f"-Dquarkus.http.port={self.port} "
        found = {pid: line for pid, line in below(os.getpid()).items() if word in line}
        for pid in found:
            kill(pid)
        wait_until_gone(found)
        self.end()

    def end(self) -> None:
        """Stop it, if it runs."""
        if self._running is not None:
            self._running.__exit__(None, None, None)
            self._running = None


class ChangeCapture:
    """The database, the connector of its tables, the registry and the broker."""

    def __init__(self, folder: Path, postgres: Postgres, broker: BrokerProcess) -> None:
        self.postgres = postgres
        self.broker = broker
        self.registry = Registry(broker.bootstrap_servers)
        self.worker = CaptureWorker(folder, broker.bootstrap_servers)

    def start(self) -> None:
        """Start worker and registry together: each needs many seconds."""
        with ThreadPoolExecutor() as pool:
            for start in [pool.submit(self.worker.start), pool.submit(self.registry.start)]:
                start.result()

    def end(self) -> None:
        self.worker.__exit__(None, None, None)
        self.registry.end()

    def capture(self, tables: Sequence[str]) -> None:
        """Let Debezium copy the rows that the tables have, and follow their changes."""
        self.postgres.execute(f"CREATE TABLE {SIGNALS} (id text PRIMARY KEY, type text, data text)")
        settings = connector_settings(self.postgres.port, self.registry.port, tables)
        self.worker.configure(CONNECTOR, settings)
        until("the connector runs", lambda: self.states() == RUNNING, self.worker.tail)

    def states(self) -> list[str]:
        """Returns the states of the connector and its task."""
        return self.worker.states(CONNECTOR)

    def until_caught_up(self) -> None:
        """Wait until the broker has acknowledged every change that the database has committed.

        It fails only if Debezium stands still, so a history may be long.
        """
        end = self._mark()
        while not has_passed(position := self.worker.source_position(CONNECTOR), end):
            until(
                f"Debezium moves on to {end}",
                lambda last=position: self.worker.source_position(CONNECTOR) != last,  # type: ignore[misc]
                lambda: f"{self.worker.source_position(CONNECTOR)}; {self.worker.tail()}",
            )

    def snapshot(self, table: str) -> None:
        """Let Debezium write an event for each row that a table has, in between other events."""
        data = {"data-collections": [f"public.{table}"], "type": "incremental"}
        self._signal("execute-snapshot", data)

    def _mark(self) -> int:
        """Add an event behind all others. Returns a position in the log before it."""
        end = self.postgres.value("SELECT pg_current_wal_insert_lsn() - '0/0'")
        self._signal("log", {"message": "a test has marked this position"})
        return int(end)

    def _signal(self, kind: str, data: object) -> None:
        self.postgres.execute(
            f"INSERT INTO {SIGNALS} VALUES (gen_random_uuid(), '{kind}', '{json.dumps(data)}')"
        )


def has_passed(position: dict[str, Any], end: int) -> bool:
    """Returns whether a position of the connector is behind a position in the log.

    It is not while a snapshot runs, the first one or one between other events.
    """
    if position.get("snapshot") and not position.get("snapshot_completed"):
        return False
    if any(value for name, value in position.items() if name.startswith("incremental_snapshot")):
        return False
    return int(position.get("lsn", 0)) >= end


def connector_settings(database: int, registry: int, tables: Sequence[str]) -> dict[str, str]:
    """Returns the settings of the connector; `database` and `registry` are ports."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(database),
        "database.user": USER,
        "database.password": "unused",
        "database.dbname": DATABASE,
        "plugin.name": "pgoutput",
        "slot.name": CONNECTOR,
        "publication.autocreate.mode": "filtered",
        "topic.prefix": CONNECTOR,
        "table.include.list": ",".join(f"public.{table}" for table in [*tables, SIGNALS]),
        "signal.data.collection": f"public.{SIGNALS}",
        "schema.name.adjustment.mode": "avro",
        "field.name.adjustment.mode": "avro",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": str(PARTITIONS),
        "topic.creation.default.cleanup.policy": "compact",
        "topic.creation.groups": "truncated",
        "topic.creation.truncated.include": rf"{CONNECTOR}\.public\.{TRUNCATED}",
        "topic.creation.truncated.partitions": "1",
        "topic.creation.truncated.cleanup.policy": "delete",
        "skipped.operations": "none",
        **converter_settings("key", registry),
        **converter_settings("value", registry),
    }


def converter_settings(part: str, registry: int) -> dict[str, str]:
    """Returns the settings with which Apicurio's converter writes the header of Confluent's."""
    options = {
        "url": f"http://127.0.0.1:{registry}/apis/registry/v2",
        "auto-register": "true",
        "as-confluent": "true",
        "use-id": "contentId",
        "headers.enabled": "false",
    }
    converter = f"{part}.converter"
    return {
        converter: "io.apicurio.registry.utils.converter.AvroConverter",
        **{f"{converter}.apicurio.registry.{name}": value for name, value in options.items()},
    }


@contextmanager
def change_capture(folder: Path) -> Iterator[ChangeCapture]:
    """Run everything, without a connector yet.

    Raises:
        PostgresUnavailable, JarsUnavailable: something is not installed.
    """
    with Postgres() as postgres, BrokerProcess(folder / "broker", QUICK_GROUPS) as broker:
        capture = ChangeCapture(folder, postgres, broker)
        try:
            capture.start()
            yield capture
        finally:
            capture.end()
