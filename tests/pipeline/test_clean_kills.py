"""Spark's driver, its JVM, its workers and the broker, killed at random stages of a cleaning.

KOMPAKT_CLEAN_KILLS says how many kills, in the soak alone; KOMPAKT_CLEAN_SEED repeats them.
"""

from __future__ import annotations

import os
import random
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.harness.broker_process import CHECKOUT, BrokerProcess
from tests.harness.clients import create_topic
from tests.harness.dirty_topics import CODECS, MINE, REMOTE, fill, fill_with_transactions
from tests.harness.process_tree import below, kill, wait_until_gone
from tests.harness.typed_commands import TypedCommands

pytest.importorskip("pyspark")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.skipif(shutil.which("java") is None, reason="needs Java"),
]

KILLS = int(os.environ.get("KOMPAKT_CLEAN_KILLS", "1"))
SEED = int(os.environ.get("KOMPAKT_CLEAN_SEED", str(random.randrange(1 << 32))))
TOPICS = ("accounts", "orders")
PAGE = CHECKOUT / "docs" / "distributed-cleaning.md"
STAGE_SECONDS_MAX = 600.0
LEASE_MS = 2_000


class KilledCleanings:
    """A broker, and jobs that clean its topics until the test kills something."""

    def __init__(self, broker: BrokerProcess, random: Random) -> None:
        self.broker = broker
        self.random = random
        self.typed = TypedCommands(broker)

    def fill(self) -> None:
        fill(self.broker, TOPICS[0], self.random, codecs=CODECS)
        fill_with_transactions(self.broker, TOPICS[1], self.random)

    def check_broker_cleans(self) -> None:
        """See that the broker's own cleaner takes the logs, and changes nothing of what they hold."""
        before = self.digests()
        for topic in TOPICS:
            for part in self.typed.json("compact", "now", topic)["partitions"]:
                assert part["error"] is None
        assert self.digests() == before

    def check_page(self) -> None:
        """Type the first command of the page that needs no cluster, and look at what it tells."""
        self.fill()
        lines = [line for line in PAGE.read_text("utf-8").splitlines() if "pipeline clean" in line]
        typed = next(line for line in lines if "'local[2]'" in line).replace(
            "data/", f"{self.broker.data_dir}/"
        )
        command = shlex.split(typed.removeprefix("$ .venv/bin/kompakt "))
        job = self.typed.started(*command, stdout=subprocess.PIPE)
        told, _ = job.communicate()
        assert job.returncode == 0
        assert [line.split(":")[0] for line in told.splitlines() if "cleaned [" in line] == [
            "accounts-0",
            "accounts-1",
        ]

    def run(self) -> tuple[str, int]:
        """Begin a job and kill something at some stage of it; what was killed, the job's exit code."""
        job = self.typed.started(
            *("pipeline", "clean", *TOPICS, "--master", "local[2,4]"),
            *("--token-file", str(self.broker.data_dir / "remote-cleaning.token")),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stage = self.random.choice((self.is_leased, self.is_indexed, self.is_recopied))
        self.wait(stage, job)
        time.sleep(self.random.random())
        spark = below(job.pid)
        victim = self.random.choice(list(self.victims(job, spark)))
        for pid in self.victims(job, spark)[victim]:
            kill(pid)
        code = job.wait()
        wait_until_gone(spark)
        if victim == "broker":
            self.broker.kill()
            self.broker.start()
        return f"{victim} once {stage.__name__}", code

    def victims(self, job: subprocess.Popen[str], spark: dict[int, str]) -> dict[str, list[int]]:
        """What is there to be killed."""
        workers = [pid for pid, line in spark.items() if "pyspark.daemon" in line]
        jvms = [pid for pid, line in spark.items() if "java" in line.split()[0]]
        all_of_them = {
            "driver": [job.pid],
            "jvm": jvms,
            "worker": workers[-1:],
            "broker": [self.broker.pid],
        }
        return {name: pids for name, pids in all_of_them.items() if pids}

    def is_leased(self) -> bool:
        return any(self.broker.data_dir.glob("leases/*"))

    def is_indexed(self) -> bool:
        return any(self.broker.data_dir.glob("leases/*/*/*.keys"))

    def is_recopied(self) -> bool:
        return any(self.broker.data_dir.glob("leases/*/*/*.log*"))

    def wait(self, holds: Callable[[], bool], job: subprocess.Popen[str]) -> None:
        """Until a stage is reached, or the job was through before anybody saw it."""
        deadline = time.monotonic() + STAGE_SECONDS_MAX
        while not holds() and job.poll() is None:
            assert time.monotonic() < deadline, f"never {holds.__name__}"
            time.sleep(0.01)

    def until_no_lease(self) -> None:
        deadline = time.monotonic() + 10 * LEASE_MS / 1000
        while self.is_leased():
            assert time.monotonic() < deadline, "a lease that no job renews does not end"
            time.sleep(0.05)

    def digests(self) -> dict[tuple[str, int], object]:
        """What each partition holds of its keys; no cleaning may change it."""
        self.broker.metrics()
        parts = [
            part
            for topic in TOPICS
            for part in self.typed.json("compact", "digest", topic)["partitions"]
        ]
        return {
            (part["topic"], part["partition"]): [
                part["digest"][name] for name in ("end_offset", "keys", "digest")
            ]
            for part in parts
        }


def test_whatever_is_killed_the_log_is_right_and_the_broker_cleans_it(tmp_path: Path) -> None:
    random = Random(SEED)
    lease = {"log.cleaner.remote.lease.ms": str(LEASE_MS)}
    with BrokerProcess(tmp_path, REMOTE | lease) as broker:
        cleanings = KilledCleanings(broker, random)
        for topic in TOPICS:
            create_topic(broker.bootstrap_servers, topic, partitions=2, config=MINE)
        for number in range(KILLS):
            cleanings.fill()
            before = cleanings.digests()

            what, code = cleanings.run()

            cleanings.until_no_lease()
            told = f"seed {SEED}, kill {number}: {what}, exit code {code}"
            assert cleanings.digests() == before, told
            sys.stdout.write(f"{told}\n")
        cleanings.check_broker_cleans()
        cleanings.check_page()
    cleanings.typed.told("dump-log", "--verify", "--keys", str(broker.data_dir))
