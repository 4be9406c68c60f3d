"""What a broker opens for itself, it opens when it starts: a load opens connections and segments only.

A limit of descriptors that is enough for a quiet broker is then enough for a busy one.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from bench.base.closed_loop import answered_rate
from bench.base.raw_protocol import fetch_request, produce_request
from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import create_topic
from tests.harness.held_files import open_targets
from tests.harness.served_broker import batch_of

TOPIC = "busy"
CONNECTIONS = 40
BATCH = bytes(batch_of(1))


def opened_for_itself(pid: int) -> Counter[str]:
    """Returns how many descriptors are open on each kind of thing that is no file and no socket."""
    own = [each for each in open_targets(pid) if not each.startswith(("/", "socket:"))]
    return Counter(re.sub(r"\d+", "", each) for each in own)


def test_a_busy_broker_opens_nothing_for_itself(tmp_path: Path) -> None:
    requests = [
        produce_request(TOPIC, 0, BATCH, acks=1),
        produce_request(TOPIC, 0, BATCH, acks=-1),
        fetch_request(TOPIC, 0, 0, bytes_max=100),
    ]
    with BrokerProcess(tmp_path, {"log.cleaner.enable": "false"}) as broker:
        create_topic(broker.bootstrap_servers, TOPIC)
        quiet = opened_for_itself(broker.pid)
        for request in requests:
            answered_rate(broker.port, [request] * CONNECTIONS, 20 * CONNECTIONS)
        assert opened_for_itself(broker.pid) == quiet
