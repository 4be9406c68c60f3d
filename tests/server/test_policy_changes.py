"""A topic's cleanup policy changes while clients write and read it and the broker cleans it.

With every policy, consumers read a record at its offset, unchanged and in order; the last record of each
key exists, unless retention has deleted it; and the log start never moves back. A new policy holds as
soon as the change is answered: records that it does not delete or compact stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.produce import ProduceResponse
from protocol.records.record_batch import Record, build_batch
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from tests.harness.served_broker import (
    NOW_MS,
    ServedBroker,
    only_produced,
    produce_request,
    records_in,
    serving_broker,
)

KEYS = 12
RECORDS_A_BATCH = 4
TOPIC = "table"

Content = dict[int, tuple[bytes | None, bytes | None]]


class World:
    """A producer that never stops, and the records that the broker acknowledged."""

    def __init__(self, served: ServedBroker) -> None:
        self.served = served
        self.log = served.log(TOPIC)
        self.acknowledged: Content = {}
        self._written = 0

    async def write(self) -> None:
        """Produce one batch after the other until cancelled."""
        client = await self.served.connect()
        while True:
            numbers = range(self._written, self._written + RECORDS_A_BATCH)
            self._written += RECORDS_A_BATCH
            pairs = [(b"key-%d" % (at * 7 % KEYS), b"%d " % at + bytes(60)) for at in numbers]
            records = [
                Record(offset=at, timestamp=NOW_MS, key=key, value=value)
                for at, (key, value) in enumerate(pairs)
            ]
            request = produce_request(TOPIC, build_batch(records))
            answer = only_produced(await client.call(request, 9, ProduceResponse))
            assert answer.error_code == ErrorCode.NONE
            for at, pair in enumerate(pairs):
                self.acknowledged[answer.base_offset + at] = pair

    async def read(self) -> Content:
        """Read everything from the log start to the last record acknowledged before the call."""
        end = max(self.acknowledged, default=-1) + 1
        found: Content = {}
        offset = self.log.log_start_offset
        while offset < end:
            data = await self.served.fetch(TOPIC, offset, partition_max_bytes=1 << 16)
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                # Like a consumer whose position is reset to the earliest offset.
                assert offset < self.log.log_start_offset
                found, offset = {}, self.log.log_start_offset
                continue
            assert data.error_code == ErrorCode.NONE
            records = [record for record in records_in(data) if record.offset >= offset]
            if not records:
                break
            assert [r.offset for r in records] == sorted({r.offset for r in records})
            found |= {record.offset: (record.key, record.value) for record in records}
            offset = Offset(records[-1].offset + 1)
        return {at: pair for at, pair in found.items() if at < end}

    async def check(self) -> Content:
        """Read, and check that every record that must exist is there as it was written."""
        acknowledged = dict(self.acknowledged)
        found = await self.read()
        start = self.log.log_start_offset
        for at, pair in found.items():
            assert self.acknowledged[at] == pair, at
        # While we read, a later record of the key may have arrived, and the cleaner removed this one.
        last = {key: at for at, (key, _) in sorted(self.acknowledged.items())}
        for key, at in {key: at for at, (key, _) in sorted(acknowledged.items())}.items():
            assert at in found or at < start or last[key] > at, (key, at)
        return found

    async def switch(self, policy: str) -> None:
        """Change the policy, as a client does."""
        config = AlterableConfig(name="cleanup.policy", config_operation=0, value=policy)
        resource = AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=(config,))
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        response = await self.served.call(request, 1, IncrementalAlterConfigsResponse)
        assert [each.error_code for each in response.responses] == [ErrorCode.NONE]

    async def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Check repeatedly until a condition holds; the log start must never move back meanwhile."""
        start = self.log.log_start_offset
        async with asyncio.timeout(60):
            while not condition():
                await self.check()
                assert self.log.log_start_offset >= start, what
                start = self.log.log_start_offset
                await asyncio.sleep(0.01)


async def test_every_policy_keeps_its_promises_while_it_lasts(tmp_path: Path) -> None:
    async with serving_broker(
        tmp_path,
        log_cleaner_enable="true",
        log_cleaner_backoff_ms="20",
        log_retention_check_interval_ms="20",
    ) as served:
        await served.create(
            TOPIC,
            cleanup_policy="delete",
            internal_segment_bytes="3000",
            min_cleanable_dirty_ratio="0.01",
            retention_bytes="12000",
            retention_ms="-1",
        )
        world = World(served)
        writer = asyncio.create_task(world.write())
        log = world.log

        await world.until("retention", lambda: log.log_start_offset > 150)
        assert log.clean_offset == log.log_start_offset

        await world.switch("compact")
        start, cleaned = log.log_start_offset, log.log_end_offset
        await world.until("cleaning", lambda: log.clean_offset > cleaned + 150)
        assert log.log_start_offset == start, "compaction never moves the log start"
        assert len(await world.check()) < log.log_end_offset - start

        await world.switch("compact,delete")
        cleaned = log.log_end_offset
        await world.until(
            "both",
            lambda: log.log_start_offset > start and log.clean_offset > cleaned + 150,
        )

        await world.switch("")
        start, cleaned, end = log.log_start_offset, log.clean_offset, log.log_end_offset
        kept = await world.read()
        await world.until("nothing", lambda: log.log_end_offset > end + 300)
        assert (log.log_start_offset, log.clean_offset) == (start, cleaned)
        found = await world.check()
        assert found.items() >= kept.items()
        assert found.keys() >= {at for at in world.acknowledged if end <= at <= max(found)}

        await world.switch("delete")
        await world.until("retention again", lambda: log.log_start_offset > end)
        assert not writer.done(), "every append was acknowledged"
        writer.cancel()
