"""SIGKILL under producers and readers of single keys: no get returns what is older than acknowledged.

Of the topic `plain` a get returns the value that was acknowledged with acks=all before it was asked, or
a later one that was sent. Of `exact` it never returns a value of an aborted transaction, nor one that is
older than the transactions before the last one: the last one's marker may follow its answer.
"""

from __future__ import annotations

import json
import random
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest

from tests.harness.broker_process import BrokerProcess
from tests.harness.kill_cycles import outliving_kills
from tests.harness.rising_numbers import EXACT, KEYS, PLAIN, RisingNumbers

CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0",
}


class Getters(RisingNumbers):
    """Gets of random keys."""

    def __init__(self, bootstrap: str, choices: random.Random) -> None:
        super().__init__(bootstrap, choices)
        self.answers = 0
        self.http_port = 0

    def read(self, topic: str) -> None:
        key = b"key-%d" % random.randrange(KEYS)
        least = self.known[topic].get(key, 0)
        number = self._get(topic, key.decode())
        if number is not None:
            self.answers += 1
            self.check(topic, key, number, least)

    def _get(self, topic: str, key: str) -> int | None:
        """Returns the number that a get returns, 0 for a miss; None if the broker does not answer."""
        connection = HTTPConnection("127.0.0.1", self.http_port, timeout=30)
        try:
            connection.request("GET", f"/v1/topics/{topic}/keys/{key}")
            response = connection.getresponse()
            answer = json.loads(response.read())
        except (OSError, HTTPException, ValueError):
            return None
        finally:
            connection.close()
        if response.status == 503 or answer.get("code") == "unknown_topic":
            return None  # It starts.
        if response.status == 404:
            return 0
        assert response.status == 200, answer
        return int(answer["value"])


def check(broker: BrokerProcess, getters: Getters) -> None:
    getters.http_port = broker.http_port
    getters.start_to_read()
    assert not getters.faults, getters.faults[:5]


@pytest.mark.crash
def test_no_get_returns_what_is_older_than_acknowledged_or_was_aborted(tmp_path: Path) -> None:
    topics = {PLAIN: CONFIG, EXACT: CONFIG}
    with outliving_kills(tmp_path, topics, Getters, check) as (_, getters):
        assert not getters.faults, getters.faults[:5]
        assert getters.answers > 100
