"""What a request uses of the quotas, with a fake clock."""

from __future__ import annotations

import asyncio
import time

import pytest

from protocol.messages.fetch import FetchResponse
from protocol.messages.sasl_handshake import SaslHandshakeResponse
from protocol.wire.error_codes import ErrorCode
from server.net.quota_usage import QuotaUsage
from server.security.quotas.client_quotas import ClientQuotas
from server.security.quotas.quota_entity import USER, QuotaEntity
from server.security.quotas.quota_limits import Client
from server.security.quotas.rates import Windows

WINDOWS = Windows(count=11, seconds=1)
ALICE = QuotaEntity.of([(USER, "alice")])


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def quotas(**values: float) -> ClientQuotas:
    found = ClientQuotas(WINDOWS, mutation_windows=WINDOWS)
    for key, value in values.items():
        found.set(ALICE, key, value)
    return found


def usage(found: ClientQuotas, clock: FakeClock | None = None) -> QuotaUsage:
    return QuotaUsage(found, Client("alice", "app"), clock=clock or FakeClock())


def test_a_produce_pauses_for_its_bytes_and_the_pause_passes() -> None:
    clock = FakeClock()
    used = usage(quotas(producer_byte_rate=100), clock)
    used.charge_produce(1500)
    assert used.pause_ms == 5000
    clock.now_s += 4
    assert used.pause_ms == 1000
    clock.now_s += 4
    assert used.pause_ms == 0


def test_a_fetch_beyond_the_quota_may_not_be_sent_and_does_not_count() -> None:
    found = quotas(consumer_byte_rate=100)
    used = usage(found)
    assert used.charge_fetch(900)
    second = usage(found)
    assert not second.charge_fetch(600)
    assert second.pause_ms == 5000
    assert usage(found).charge_fetch(100), "what was not sent was taken back"


def test_a_fetch_is_bounded_by_what_never_leads_to_a_pause() -> None:
    assert usage(quotas(consumer_byte_rate=100)).fetch_bytes_max(1 << 20) == 1000
    assert usage(quotas(consumer_byte_rate=100)).fetch_bytes_max(10) == 10
    assert usage(quotas(producer_byte_rate=100)).fetch_bytes_max(1 << 20) == 1 << 20


async def test_the_time_of_the_loop_counts_and_waiting_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    found = quotas(request_percentage=1)
    used = usage(found)

    async def work() -> str:
        now[0] += 0.05
        waiting = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(resume, waiting)
        await waiting
        now[0] += 0.07
        return "done"

    def resume(waiting: asyncio.Future[None]) -> None:
        now[0] += 100
        waiting.set_result(None)

    assert await used.timed(work()) == "done"
    used.charge_time()
    used.charge_time()
    # 12 percent of a second over ten seconds are 1.2 percent.
    assert used.pause_ms == 1000
    assert found.request.uses(1, 1e6)[0].value == pytest.approx(1.2)


async def test_a_cancelled_request_is_cancelled() -> None:
    used = usage(quotas(request_percentage=1))
    ended = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append(True)
            raise

    async def wrapped() -> None:
        await used.timed(work())

    task = asyncio.ensure_future(wrapped())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended


async def test_an_exception_of_the_work_passes() -> None:
    async def work() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await usage(quotas(request_percentage=1)).timed(work())


def test_new_clients_are_refused_mutations_and_old_ones_pause() -> None:
    found = quotas(controller_mutation_rate=1)
    used = usage(found)
    assert used.charge_mutations(12, is_strict=True) is None
    refused = used.charge_mutations(1, is_strict=True)
    assert refused is not None
    assert refused.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert refused.message == "The throttling quota has been exceeded."
    assert used.pause_ms == 1000
    old = usage(found)
    assert old.charge_mutations(1, is_strict=False) is None
    assert old.pause_ms == 2000


def test_the_answer_names_the_pause_if_it_can() -> None:
    used = usage(quotas(producer_byte_rate=100))
    unthrottled = FetchResponse(responses=())
    assert used.stamped(unthrottled) is unthrottled
    used.charge_produce(1500)
    stamped = used.stamped(unthrottled)
    assert isinstance(stamped, FetchResponse)
    assert stamped.throttle_time_ms == 5000
    other = SaslHandshakeResponse(error_code=0, mechanisms=())
    assert used.stamped(other) is other


def test_pauses_are_reported_by_quota() -> None:
    pauses: list[tuple[str, float]] = []
    found = ClientQuotas(
        WINDOWS, mutation_windows=WINDOWS, on_pause=lambda *pause: pauses.append(pause)
    )
    found.set(ALICE, "producer_byte_rate", 100)
    usage(found).charge_produce(900)
    usage(found).charge_produce(600)
    assert pauses == [("producer_byte_rate", 5.0)]
