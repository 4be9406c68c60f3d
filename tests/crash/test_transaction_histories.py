"""Random histories of transactions with kills: exactly once, before and after cleaning.

Programs of all clients consume, transform and produce in transactions, over several partitions and
groups, while they and their broker are killed and a cleaner never rests. A read_committed reader is
given every committed record once, in order, and no aborted one (`transaction_checker.py`).

`KOMPAKT_TRANSACTION_HISTORIES` sets how many there are, `KOMPAKT_TRANSACTION_SEED` where they begin:
a history's seed chooses its programs and kills, though its moments shift with the machine's load.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.spark.jars import JarsUnavailable
from storage.files.local_files import ReadOnlyFileSystem
from tests.harness.broker_process import BrokerProcess
from tests.harness.cleaning import wait_until_clean
from tests.harness.transaction_checker import violations
from tests.harness.transaction_plan import plan_of
from tests.harness.transaction_run import BROKER_CONFIG, TransactionRun
from tests.harness.verification import errors_in

HISTORIES = int(os.environ.get("KOMPAKT_TRANSACTION_HISTORIES", "6"))
FIRST_SEED = int(os.environ.get("KOMPAKT_TRANSACTION_SEED", "1"))
PYTHON_CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka")
JAVA_CLIENTS = ("java-3.9", "java-4.3")
SEEDS = range(FIRST_SEED, FIRST_SEED + HISTORIES)
AT_ONCE = 3
ON_A_BROKER = 15
"""Each history leaves three topics behind: a broker with more has long recoveries, and its metrics do
not list every partition (`metrics.partitions.max`)."""

pytestmark = pytest.mark.crash


@dataclass(frozen=True, slots=True)
class Made:
    """What a history has come to."""

    summary: str
    violations: list[str]


@contextmanager
def started_broker(folder: Path) -> Iterator[BrokerProcess]:
    """One for a share of the histories, killed in most of them; its files are verified at last."""
    with BrokerProcess(folder, BROKER_CONFIG) as process:
        yield process
    assert errors_in(ReadOnlyFileSystem(), str(process.data_dir)) == []


class Histories:
    """All of them, by shares with a broker each; some are made at a time, because they mostly wait."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._share = ExitStack()
        self._made: dict[int, Future[Made]] = {}

    def of(self, seed: int) -> Made:
        """The history of a seed; seeds come in order."""
        if seed not in self._made:
            self.end_share()
            self._begin_share(seed)
        return self._made[seed].result()

    def _begin_share(self, first_seed: int) -> None:
        seeds = SEEDS[SEEDS.index(first_seed) :][:ON_A_BROKER]
        folder, calm = self._factory.mktemp("histories"), threading.Lock()
        broker = self._share.enter_context(started_broker(self._factory.mktemp("broker")))
        pool = self._share.enter_context(ThreadPoolExecutor(AT_ONCE))
        self._share.callback(pool.shutdown, cancel_futures=True)
        self._made = {
            seed: pool.submit(make, broker, folder / str(seed), seed, calm) for seed in seeds
        }

    def end_share(self) -> None:
        self._share.close()


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Histories]:
    made = Histories(tmp_path_factory)
    try:
        yield made
    finally:
        made.end_share()


def make(broker: BrokerProcess, folder: Path, seed: int, calm: threading.Lock) -> Made:
    """One history, checked."""
    run = TransactionRun(
        folder,
        broker,
        plan_of(seed, workers_of(seed)),
        clean=lambda topic: wait_until_clean(f"127.0.0.1:{broker.http_port}", topic),
        readers=(PYTHON_CLIENTS[seed % 3],),
        calm=calm,
    )
    wrong = [str(each) for each in violations(run.run())]
    return Made(f"{run.plan}: {run.summary()}", wrong)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_is_exactly_once(histories: Histories, seed: int) -> None:
    try:
        history = histories.of(seed)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    print(history.summary)  # noqa: T201  pytest shows it with a failure, a soak keeps it
    assert history.violations == []


def workers_of(seed: int) -> tuple[str, ...]:
    """Every tenth history has workers of the Java client: a JVM takes a second of the machine."""
    return PYTHON_CLIENTS if seed % 10 else (JAVA_CLIENTS[seed // 10 % 2],)
