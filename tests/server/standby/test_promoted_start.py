"""The start that finishes a promotion settles the coordinators, and reports what it has changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from protocol.wire.error_codes import ErrorCode
from server.coordination.transactions.metadata import TransactionPartition
from server.coordination.transactions.transaction_table import TransactionEntry
from server.standby import promoted_start as promoted_start_module
from server.standby.promoted_start import PromotedStart, incomplete_transactions
from server.standby.promotion import (
    Promotion,
    begin_promotion,
    read_promotion,
    read_report,
)
from storage.files.errors import StorageError
from storage.files.local_files import LocalFileSystem
from storage.files.paths import STANDBY
from tests.harness.committed import commit, committed
from tests.harness.served_broker import ServedBroker, batch_of, serving_broker
from tests.harness.transaction_requests import TX, add, described, end, init

PROMOTION = Promotion(
    promoted_ms=7,
    standby="standby",
    source="source:9092",
    forced=True,
    epoch=0,
    missing=["unknown: the source does not answer"],
    unknown_topics=[],
)
FILES = LocalFileSystem()


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[ServedBroker]:
    """Run a broker with a topic, on a directory whose promotion has begun."""
    async with serving_broker(tmp_path, offsets_topic_num_partitions="1") as served:
        await served.create("orders", partitions=2)
        await served.produce("orders", batch_of(3))
        (tmp_path / STANDBY).mkdir()
        begin_promotion(FILES, str(tmp_path), PROMOTION)
        yield served


def start_of(served: ServedBroker, tmp_path: Path, promotion: Promotion) -> PromotedStart:
    """Returns the start that finishes a promotion, with the transactions as they are now."""
    found = PromotedStart(FILES, str(tmp_path), promotion, served.broker.executors.upkeep)
    for entry in served.broker.transactions.table.entries():
        found.transaction_loaded(entry)
    return found


async def finish(started: PromotedStart, served: ServedBroker) -> None:
    broker = served.broker
    await started.finish(broker.topics, broker.transactions, broker.offsets)


async def test_ongoing_transactions_are_aborted_and_offsets_beyond_the_end_lowered(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as served:
        await add(served, await init(served), {"orders": (0,)})
        await commit(served, "billing", "orders", 5)
        await commit(served, "mail", "orders", 3)

        await finish(start_of(served, tmp_path, PROMOTION), served)

        report = read_report(FILES, str(tmp_path), PROMOTION.promoted_ms)
        assert report.aborted == [TX]
        assert report.lowered == [
            "orders-0: group billing had committed 5, the log ends at 4",
        ]
        assert (await described(served)).transaction_state == "CompleteAbort"
        # The fourth record is the marker of the abort.
        assert await committed(served, "billing", "orders") == 4
        assert await committed(served, "mail", "orders") == 3


async def test_a_report_has_what_a_start_has_changed_before_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> str:
        raise StorageError("no space")

    async with serving(tmp_path) as served:
        await add(served, await init(served), {"orders": (1,)})
        await commit(served, "billing", "orders", 5)
        with monkeypatch.context() as patch:
            patch.setattr(promoted_start_module, "end_promotion", fails)
            with pytest.raises(StorageError):
                await finish(start_of(served, tmp_path, PROMOTION), served)
        left = read_promotion(FILES, str(tmp_path))
        assert left is not None

        await finish(start_of(served, tmp_path, left), served)

        report = read_report(FILES, str(tmp_path), PROMOTION.promoted_ms)
        assert report.aborted == [TX]
        assert len(report.lowered) == 1


async def test_a_transaction_whose_timeout_is_aborting_it_is_waited_for(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await add(served, await init(served), {"orders": (0,)})
        transactions = served.broker.transactions
        entry = transactions.describe(TX)
        assert isinstance(entry, TransactionEntry)
        deadline_ms = entry.transaction.metadata.deadline_ms
        assert deadline_ms is not None
        timed_out = transactions.outcomes.carry_out(entry, entry.transaction.time_out(deadline_ms))

        await transactions.abort_ongoing()

        assert (await described(served)).transaction_state == "CompleteAbort"
        assert (await timed_out).error_code is ErrorCode.NONE


async def test_a_transaction_that_was_committed_keeps_its_outcome(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        producer = await init(served)
        await add(served, producer, {"orders": (0,)})
        assert (await end(served, producer)).error_code == ErrorCode.NONE

        await finish(start_of(served, tmp_path, PROMOTION), served)

        assert (await described(served)).transaction_state == "CompleteCommit"
        assert read_report(FILES, str(tmp_path), PROMOTION.promoted_ms).aborted == []


COMMITTING = {"tx": [TransactionPartition("orders", 1), TransactionPartition("orders", 0)]}


def test_a_committed_transaction_is_listed_with_the_partitions_that_lack_records() -> None:
    missing = ["orders-1: this log ends at 3, the source's at 5", "sums-0: nothing is copied"]
    assert incomplete_transactions(missing, COMMITTING) == [
        "the transaction of tx is committed, and orders-1 may lack records of the source"
    ]
    assert incomplete_transactions(["sums-0: nothing is copied"], COMMITTING) == []


@pytest.mark.parametrize("unknown", ["unknown: no answer", "all topics: not asked yet"])
def test_if_it_is_unknown_what_is_missing_every_partition_may_lack_records(unknown: str) -> None:
    found = incomplete_transactions([unknown], COMMITTING)
    assert [each.split()[7] for each in found] == ["orders-0", "orders-1"]
