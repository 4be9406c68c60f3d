"""SIGKILL at random moments, to those who clean a leased log and to the broker: the log stays right.

After each kill the files are verified as they are; after each round every key has its last value.
`KOMPAKT_LEASE_KILLS` sets how many rounds there are, `KOMPAKT_KILL_SEED` repeats the choices of a run.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from storage.files.local_files import ReadOnlyFileSystem
from tests.harness.broker_process import CHECKOUT, BrokerProcess
from tests.harness.clients import ConfluentClient, create_topic
from tests.harness.verification import errors_in

ROUNDS = int(os.environ.get("KOMPAKT_LEASE_KILLS", "3"))
RECORDS, KEYS = 2_000, 300
TOPIC = "table"
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "1",
}
BROKER = {"log.cleaner.remote.enable": "true", "log.cleaner.backoff.ms": "3600000"}
SECONDS_MAX = 300.0


class Story:
    """A broker, what its log must hold, and who cleans it."""

    def __init__(self, folder: Path, choices: random.Random) -> None:
        self.folder = folder
        self.broker = BrokerProcess(folder, BROKER)
        self.choices = choices
        self.last: dict[bytes, bytes] = {}
        self.commits = 0

    def write(self) -> None:
        records = [
            (b"%d" % self.choices.randrange(KEYS), self.choices.randbytes(400))
            for _ in range(RECORDS)
        ]
        ConfluentClient().produce(self.broker.bootstrap_servers, {TOPIC: "lz4"}, records)
        self.last.update(records)

    def ask(self, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
        token = (self.broker.data_dir / "remote-cleaning.token").read_text().strip()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.broker.http_port}{path}",
            method=method,
            data=None if body is None else body.encode(),
            headers={"Authorization": f"Bearer {token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=SECONDS_MAX) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    @property
    def where(self) -> str:
        return f"/v1/compaction/topics/{TOPIC}/partitions/0/lease"

    def lease(self) -> str:
        status, answer = self.ask("POST", self.where)
        assert status == 200, answer
        (self.folder / "plan.json").write_text(json.dumps(answer["plan"]))
        (self.folder / "result.json").unlink(missing_ok=True)
        return str(answer["lease"])

    def execute(self) -> subprocess.Popen[bytes]:
        """Begin an attempt."""
        names = [str(self.folder / name) for name in ("plan.json", "result.json")]
        return subprocess.Popen(
            [sys.executable, "-m", "tests.harness.lease_program", *names],
            cwd=CHECKOUT,
            stderr=subprocess.DEVNULL,
        )

    def kill_one_that_works(self, lease: str) -> None:
        """Kill an attempt once it has begun to write, or while it starts."""
        executor = self.execute()
        ends_at = time.monotonic() + SECONDS_MAX
        folder = self.broker.data_dir / "leases" / lease
        while executor.poll() is None and not any(folder.iterdir()):
            assert time.monotonic() < ends_at
            time.sleep(0.001)
        time.sleep(self.choices.uniform(0, 0.02))
        executor.kill()
        executor.wait()

    def begin_commit(self, lease: str) -> str:
        """Have what an attempt made committed: the job's path."""
        executor = self.execute()
        assert executor.wait(SECONDS_MAX) == 0
        status, job = self.ask(
            "POST", f"{self.where}/{lease}/commit", (self.folder / "result.json").read_text()
        )
        assert status == 202, job
        return str(job["url"])

    def finish_commit(self, job: str) -> None:
        answer: Any = {"is_over": False}
        while not answer["is_over"]:
            time.sleep(0.01)
            _, answer = self.ask("GET", job)
        assert answer["is_done"], answer
        self.commits += 1

    def kill_broker(self) -> None:
        self.broker.kill()
        assert errors_in(ReadOnlyFileSystem(), str(self.broker.data_dir)) == []
        self.broker.start()

    def check(self) -> None:
        records = ConfluentClient().consume(self.broker.bootstrap_servers, [TOPIC])
        assert {key: value for _, _, _, key, value in records} == self.last
        assert list(self.broker.data_dir.glob("leases/*")) == []


@pytest.mark.crash
def test_kills_of_executors_and_of_the_broker_lose_no_value(tmp_path: Path) -> None:
    seed = int(os.environ.get("KOMPAKT_KILL_SEED", str(random.randrange(1 << 32))))
    print(f"KOMPAKT_KILL_SEED={seed}")  # noqa: T201
    story = Story(tmp_path, random.Random(seed))
    story.broker.start()
    create_topic(story.broker.bootstrap_servers, TOPIC, config=CONFIG)
    try:
        for number in range(ROUNDS):
            story.write()
            lease = story.lease()
            story.kill_one_that_works(lease)
            match number % 3:
                case 0:
                    # Another attempt of the same tasks, beside what the killed one left.
                    story.finish_commit(story.begin_commit(lease))
                case 1:
                    story.begin_commit(lease)
                    time.sleep(story.choices.uniform(0, 0.05))
                    story.kill_broker()
                case _:
                    assert story.ask("DELETE", f"{story.where}/{lease}")[0] == 200
            story.check()
        assert errors_in(ReadOnlyFileSystem(), str(story.broker.data_dir)) == []
    finally:
        story.broker.__exit__(None)
    assert story.commits == -(-ROUNDS // 3)
