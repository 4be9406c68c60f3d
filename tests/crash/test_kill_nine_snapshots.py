"""SIGKILL under producers, and while snapshots are made and dropped: one that was answered is there,
with all that was acknowledged before it was asked for; no other is complete by half.

Passes run all the time. The logs of each snapshot are opened from its directory after each kill.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest

from storage.snapshots.descriptor import decode
from tests.harness.broker_process import BrokerProcess
from tests.harness.compacted_log import records_of
from tests.harness.kill_cycles import outliving_kills
from tests.harness.log_transactions import committed_offsets
from tests.harness.rising_numbers import EXACT, PLAIN, RisingNumbers
from tests.harness.snapshot_on_disk import close, opened_snapshot

CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0",
}
KEPT_MAX = 4
ROOT = "/v1/snapshots"
Least = Mapping[str, Mapping[bytes, int]]


class Snapshotters(RisingNumbers):
    """One thread makes snapshots and drops them; the other lists them."""

    def __init__(self, bootstrap: str, choices: random.Random) -> None:
        super().__init__(bootstrap, choices)
        self.http_port = 0
        self.made = 0
        self.checked = 0
        self.kept: dict[str, Least] = {}
        """The snapshots that were answered and not dropped: what was acknowledged before."""
        self.changing = threading.Lock()
        """Held while `kept` and the snapshots on disk do not agree."""

    def read(self, topic: str) -> None:
        if topic != PLAIN:
            self._ask("GET", "")
            return
        with self.changing:
            if len(self.kept) > KEPT_MAX:
                oldest = next(iter(self.kept))
                del self.kept[oldest]
                self._ask("DELETE", f"/{oldest}")
            least = {name: dict(known) for name, known in self.known.items()}
            made = self._ask("POST", "")
            if made is not None:
                self.made += 1
                self.kept[made["id"]] = least

    def _ask(self, method: str, path: str) -> Any:
        """Returns the answer; None if the broker was killed, or starts."""
        connection = HTTPConnection("127.0.0.1", self.http_port, timeout=30)
        try:
            connection.request(method, ROOT + path)
            response = connection.getresponse()
            answer = json.loads(response.read())
        except (OSError, HTTPException, ValueError):
            return None
        finally:
            connection.close()
        if response.status == 503:
            return None
        if response.status not in (200, 201, 404):
            self.faults.append(f"{method} {path}: {response.status} {answer}")
        return answer if response.status < 300 else None

    def check_all(self, directory: Path) -> None:
        """Open each snapshot in a data directory, and compare it with what was acknowledged."""
        with self.changing:
            for snapshot_id, least in self.kept.items():
                path = directory / "snapshots" / snapshot_id / "snapshot.json"
                if not path.exists():
                    self.faults.append(f"snapshot {snapshot_id} is gone")
                    continue
                self._check_one(path, least)

    def _check_one(self, path: Path, least: Least) -> None:
        logs = opened_snapshot(decode(path.read_bytes(), str(path)))
        for topic, known in least.items():
            log = logs[topic, 0]
            committed = set(committed_offsets(log, max_bytes=1 << 20))
            last = {each.key: each for each in records_of(log) if each.offset in committed}
            for key, number in known.items():
                found = last.get(key)
                value = 0 if found is None or found.value is None else int(found.value)
                self.check(topic, key, value, number)
        self.checked += 1
        close(logs)


def check(broker: BrokerProcess, writer: Snapshotters) -> None:
    writer.http_port = broker.http_port
    broker.metrics()  # Waits for the HTTP endpoint.
    writer.check_all(broker.data_dir)
    writer.start_to_read()
    assert not writer.faults, writer.faults[:5]


@pytest.mark.crash
def test_a_snapshot_that_was_answered_outlives_kills_with_all_that_was_acknowledged_before(
    tmp_path: Path,
) -> None:
    topics = {PLAIN: CONFIG, EXACT: CONFIG}
    with outliving_kills(tmp_path, topics, Snapshotters, check) as (broker, writer):
        writer.check_all(broker.data_dir)
        assert not writer.faults, writer.faults[:5]
        assert writer.made > 5
        assert writer.checked > 3
        with writer.changing:
            listed = writer._ask("GET", "")["snapshots"]
            for each in listed:
                if each["id"] not in writer.kept:
                    # Made or dropped while the broker was killed.
                    assert writer._ask("DELETE", f"/{each['id']}") == {}
            left = writer._ask("GET", "")["snapshots"]
        assert {each["id"] for each in left} == set(writer.kept)
        assert all(each["is_complete"] for each in left)
