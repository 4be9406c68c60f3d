"""SIGKILL at random moments while a group commits: no acknowledged offset is lost or goes back.

One group commits ever larger offsets for a few partitions, one request after another, while a cleaner
that never rests compacts them. After each restart what is fetched lies between what was acknowledged
and what was sent.

`KOMPAKT_KILL_SEED` repeats the choices of a run, `KOMPAKT_KILLS` sets how many kills there are (one for
each ten of the logs' own).
"""

from __future__ import annotations

import os
import random
import struct
import threading
import time
from pathlib import Path

from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import create_topic
from tests.harness.raw_connection import ConnectionEnded, RawConnection, string

KILLS = int(os.environ.get("KOMPAKT_KILLS", "50")) // 10
PARTITIONS = 4
GROUP, TOPIC = "group", "orders"
OFFSET_COMMIT, OFFSET_FETCH, CREATE_TOPICS = 8, 9, 19
LOADING = 14
ENDED = (ConnectionEnded, OSError)

Offsets = list[int]
"""By partition."""


class Committer:
    """Commits until its broker dies; knows what was sent and what was acknowledged."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.sent: Offsets = [-1] * PARTITIONS
        self.acknowledged: Offsets = [-1] * PARTITIONS
        self.requests = 0

    def commit_until_it_dies(self) -> None:
        try:
            with RawConnection(self._port) as connection:
                while True:
                    self._commit(connection)
        except ENDED:
            return

    def _commit(self, connection: RawConnection) -> None:
        self.requests += 1
        partitions = random.sample(range(PARTITIONS), random.randrange(1, PARTITIONS + 1))
        for partition in partitions:
            self.sent[partition] = self.requests
        answer = connection.request(OFFSET_COMMIT, 2, commit_body(partitions, self.requests))
        (error_code,) = struct.unpack_from(">h", answer, len(answer) - 2)
        if error_code == LOADING:
            return
        assert error_code == 0, error_code
        for partition in partitions:
            self.acknowledged[partition] = self.requests


def commit_body(partitions: list[int], offset: int) -> bytes:
    """OffsetCommit v2, from outside of the group."""
    body = string(GROUP) + struct.pack(">i", -1) + string("") + struct.pack(">qi", -1, 1)
    body += string(TOPIC) + struct.pack(">i", len(partitions))
    each = (struct.pack(">iq", partition, offset) + string("") for partition in partitions)
    return body + b"".join(each)


def fetched(port: int) -> Offsets:
    """OffsetFetch v2, once the group is loaded."""
    body = string(GROUP) + struct.pack(">i", 1) + string(TOPIC) + struct.pack(">i", PARTITIONS)
    body += struct.pack(f">{PARTITIONS}i", *range(PARTITIONS))
    with RawConnection(port) as connection:
        while True:
            answer = connection.request(OFFSET_FETCH, 2, body)
            (error_code,) = struct.unpack_from(">h", answer, len(answer) - 2)
            if error_code != LOADING:
                break
            time.sleep(0.01)
    assert error_code == 0, error_code
    at = 4 + 2 + len(TOPIC) + 4
    found = []
    for _ in range(PARTITIONS):
        _, offset, size = struct.unpack_from(">iqh", answer, at)
        found.append(offset)
        at += 14 + max(size, 0) + 2
    return found


def test_no_acknowledged_offset_is_lost_or_goes_back(tmp_path: Path) -> None:
    random.seed(int(os.environ.get("KOMPAKT_KILL_SEED", "1")))
    overrides = {
        "offsets.topic.num.partitions": "1",
        "offsets.topic.segment.bytes": str(1 << 20),
        "log.cleaner.backoff.ms": "20",
        "log.cleaner.min.cleanable.ratio": "0",
        "log.roll.ms": "100",
        "log.roll.check.interval.ms": "50",
    }
    with BrokerProcess(tmp_path, overrides) as broker:
        create_topic(broker.bootstrap_servers, TOPIC, partitions=PARTITIONS)
        committer = Committer(broker.port)
        for _ in range(KILLS):
            before = committer.requests
            committing = threading.Thread(target=committer.commit_until_it_dies)
            committing.start()
            while committer.requests <= before + 10:
                assert committing.is_alive(), "it did not commit"
                time.sleep(0.01)
            time.sleep(random.random())
            broker.kill()
            committing.join()
            broker.start()
            found = fetched(broker.port)
            assert all(map(int.__le__, committer.acknowledged, found)), (
                committer.acknowledged,
                found,
            )
            assert all(map(int.__le__, found, committer.sent)), (found, committer.sent)
