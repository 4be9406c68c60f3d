"""This release reads the data directories that earlier ones have written and that a kill has left.

`python -m tests.earlier_data` makes another.
"""

from __future__ import annotations

import json
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.earlier_data.account import account_of, records_of
from tests.earlier_data.scene import CLEANED_SECONDS_MAX, PENDING_ID, PROPERTIES
from tests.harness.broker_process import BrokerProcess

ARCHIVES = sorted(Path(__file__).parent.glob("*.tar.xz"))


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.split(".")[0])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    # No cleaning: it would remove records that the earlier release has kept so far.
    with BrokerProcess(tmp_path, PROPERTIES | {"log.cleaner.enable": "false"}) as broker:
        yield broker


@pytest.fixture
def expected(request: pytest.FixtureRequest) -> dict[str, object]:
    archive: Path = request.node.callspec.params["broker"]
    found: dict[str, object] = json.loads(
        archive.with_name(archive.name.split(".")[0] + ".json").read_text()
    )
    return found


def test_clients_see_what_they_saw_of_the_release_that_wrote_it(
    broker: BrokerProcess, expected: dict[str, object]
) -> None:
    found = json.loads(json.dumps(account_of(broker.bootstrap_servers)))
    assert found == expected
    broker.restart()
    assert json.loads(json.dumps(account_of(broker.bootstrap_servers))) == expected


def test_a_transaction_that_was_open_is_never_seen_and_its_producer_goes_on(
    broker: BrokerProcess,
) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": PENDING_ID}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("pending", key="after", value="committed")
    producer.commit_transaction(30)

    (partition,) = records_of(broker.bootstrap_servers, "pending", "read_committed").values()
    assert [record[2:4] for record in partition["records"]] == [["after", "committed"]]


def test_the_cleaner_goes_on_with_what_the_earlier_release_has_cleaned(
    broker: BrokerProcess, expected: dict[str, object]
) -> None:
    before = records_of(broker.bootstrap_servers, "accounts", "read_uncommitted")["0"]["records"]
    broker.overrides["log.cleaner.enable"] = "true"
    broker.restart()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("accounts", key="last", value="one")
    assert producer.flush(30) == 0

    last = {record[2]: record for record in before}
    assert len(before) > len(last)
    deadline = time.monotonic() + CLEANED_SECONDS_MAX
    while True:
        after = records_of(broker.bootstrap_servers, "accounts", "read_uncommitted")["0"]["records"]
        if len(after) == len(last) + 1:
            break
        assert time.monotonic() < deadline, f"{len(after)} records are left"
        time.sleep(0.1)
    assert {record[2]: record for record in after if record[2] != "last"} == last
