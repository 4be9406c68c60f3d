"""A distributed worker of Kafka Connect keeps what it knows here, over its own kill -9 and ours."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.spark.jars import JarsUnavailable
from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import ConfluentClient
from tests.harness.connect_worker import TOPICS, ConnectWorker
from tests.harness.group_run import until
from tests.harness.typed_commands import TypedCommands

QUICK_GROUPS = {"group.min.session.timeout.ms": 1_000, "group.initial.rebalance.delay.ms": 0}
SETTLED_LINES = 1_000
LINE = "line {:08}\n"
LINE_BYTES = len(LINE.format(0))


class GrowingFile:
    """A file to which a thread appends distinct lines until `end` is called."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_whole = threading.Event()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def lines(self) -> list[str]:
        return self._path.read_text().splitlines()

    def end(self) -> None:
        self._is_whole.set()
        self._writer.join()

    def _write(self) -> None:
        count = 0
        with self._path.open("w", buffering=1) as file:
            while not self._is_whole.wait(0.01):
                file.writelines(map(LINE.format, range(count, count + 10)))
                count += 10


class FileCopy:
    """One file copied to another through a topic, by a source and a sink."""

    def __init__(self, folder: Path, worker: ConnectWorker) -> None:
        self._worker = worker
        self._copied = folder / "copied"
        self.source = GrowingFile(folder / "source")
        # A source that has as many lines as its batch.size keeps the rest of its buffer for later.
        ends = {
            "source": {"file": folder / "source", "topic": "lines", "batch.size": 1_000_000},
            "sink": {"file": self._copied, "topics": "lines"},
        }
        for name, config in ends.items():
            kind = {"connector.class": f"FileStream{name.title()}"}
            worker.configure(name, {**kind, **{key: str(value) for key, value in config.items()}})

    def lines(self) -> list[str]:
        """What has arrived."""
        return self._copied.read_text().splitlines() if self._copied.exists() else []

    def until_it_goes_on(self, lines: int = 100) -> None:
        """Wait until so many more lines have arrived that neither connector would copy again."""
        goal = len(self.lines()) + lines
        until(
            "both continue",
            lambda: len(self.lines()) >= goal and self._committed_lines() >= goal,
            lambda: f"{len(self.lines())} and {self._committed_lines()}; {self._worker.tail()}",
        )

    def until_all_is_there(self) -> None:
        """Wait for the last line."""
        last = self.source.lines()[-1]
        until(last, lambda: self.lines()[-1:] == [last], self._worker.tail)

    def _committed_lines(self) -> int:
        """How many lie before both offsets: a source's counts bytes, a sink's records."""
        position = self._worker.position
        return min(position("source") // LINE_BYTES, position("sink"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker", QUICK_GROUPS) as process:
        yield process


@pytest.fixture
def worker(tmp_path: Path, broker: BrokerProcess) -> Iterator[ConnectWorker]:
    try:
        running = ConnectWorker(tmp_path, broker.bootstrap_servers)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    with running:
        yield running


def known(broker: BrokerProcess) -> tuple[int, dict[tuple[str, bytes | None], bytes]]:
    """How many records the worker's topics hold, and the last value of each key that has one."""
    records = list(ConfluentClient().consume(broker.bootstrap_servers, TOPICS))
    last = {(topic, key): value for topic, _, _, key, value in records}
    return len(records), {key: value for key, value in last.items() if value is not None}


def clean(broker: BrokerProcess) -> None:
    """A pass over each of the worker's topics, all of which are compacted ones."""
    typed = TypedCommands(broker)
    for topic in TOPICS:
        shown = typed.json("configs", "describe", "--topic", topic, "cleanup.policy")
        assert [config["value"] for config in shown["configs"]] == ["compact"]
        typed.told("compact", "now", topic)


def test_a_file_is_copied_over_a_kill_of_the_broker_and_of_both(
    tmp_path: Path, broker: BrokerProcess, worker: ConnectWorker
) -> None:
    copy = FileCopy(tmp_path, worker)
    copy.until_it_goes_on(SETTLED_LINES)

    broker.kill()
    broker.start()
    copy.until_it_goes_on()

    worker.kill()
    broker.kill()
    broker.start()
    count, before = known(broker)
    clean(broker)
    cleaned_count, after = known(broker)
    assert after == before
    assert cleaned_count < count

    worker.start()
    copy.until_it_goes_on()
    copy.source.end()
    copy.until_all_is_there()

    lines = copy.lines()
    assert list(dict.fromkeys(lines)) == copy.source.lines()
    assert len(set(lines[:SETTLED_LINES])) == SETTLED_LINES
    assert not set(lines[:SETTLED_LINES]) & set(lines[SETTLED_LINES:]), "copied from the beginning"
    for connector in ("source", "sink"):
        assert worker.states(connector) == ["RUNNING", "RUNNING"]
    worker.stop()
