"""Asks a broker process over its HTTP API, as an operator's command does."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any

from tests.harness.broker_process import BrokerProcess

SECONDS_MAX = 60.0


def ask(broker: BrokerProcess, method: str, path: str, body: object = None) -> Any:
    """Returns the JSON of an answer; `path` is relative to /v1/compaction. Raises HTTPError, OSError."""
    return _answer(broker, method, f"/v1/compaction{path}", body)


def _answer(broker: BrokerProcess, method: str, path: str, body: object) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{broker.http_port}{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
    )
    with urllib.request.urlopen(request, timeout=SECONDS_MAX) as answer:
        return json.load(answer)


def make_snapshot(broker: BrokerProcess, *topics: str) -> str:
    """Make a snapshot of some topics, or of all. Returns its id."""
    made = _answer(broker, "POST", "/v1/snapshots", {"topics": list(topics) or None})
    return str(made["id"])


def clean_now(broker: BrokerProcess, topic: str) -> Any:
    """Let a pass run over a topic's only partition. Returns the job, which has ended."""
    job = ask(broker, "POST", f"/topics/{topic}/partitions/0/now")
    deadline = time.monotonic() + SECONDS_MAX
    while not job["is_over"]:
        assert time.monotonic() < deadline, job
        time.sleep(0.01)
        job = ask(broker, "GET", f"/jobs/{job['id']}")
    return job


def erase(broker: BrokerProcess, topic: str, key: bytes) -> Any:
    """Accept the erasure of a key. Returns the erasure."""
    body = {"keys": [key.hex()], "within_ms": 3_600_000}
    (erasure,) = ask(broker, "POST", f"/topics/{topic}/erase", body)["erasures"]
    return erasure


def undo_newest(broker: BrokerProcess, topic: str) -> bool:
    """Undo the newest pass over a topic's only partition. Returns whether there was one. The topic is
    paused then. Raises HTTPError: another pass came in between."""
    where = f"/topics/{topic}/partitions/0/undo"
    (kept,) = ask(broker, "GET", where)["partitions"]
    if kept["passes"]:
        ask(broker, "POST", f"{where}?pass={kept['passes'][0]['number']}")
    return bool(kept["passes"])
