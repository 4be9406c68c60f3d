"""The cleaner's I/O budget: the rate, the burst, live changes, fairness and stopping."""

from __future__ import annotations

import threading
import time

import pytest

from cleaner.pacing.budget import BURST_SECONDS, Budget
from cleaner.pacing.throttle import NAP_SECONDS_MAX, IoRates, Throttle


class FakeTime:
    """A clock that advances only by sleeping."""

    def __init__(self) -> None:
        self.now = 100.0
        self.naps: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> bool:
        self.naps.append(seconds)
        self.now += seconds
        return False


def test_spending_takes_the_time_that_the_rate_says() -> None:
    fake = FakeTime()
    throttle = Throttle(IoRates(total=1000), clock=fake.clock)

    for _ in range(50):
        throttle.read(100, sleep=fake.sleep)

    assert fake.now - 100.0 == pytest.approx(5.0 - BURST_SECONDS, abs=0.001)


def test_a_burst_passes_without_a_wait() -> None:
    fake = FakeTime()
    throttle = Throttle(IoRates(total=1000), clock=fake.clock)

    slept = throttle.read(int(1000 * BURST_SECONDS), sleep=fake.sleep)

    assert slept == 0
    assert fake.naps == []


def test_nothing_is_saved_up_while_nobody_spends() -> None:
    fake = FakeTime()
    throttle = Throttle(IoRates(total=1000), clock=fake.clock)
    fake.now += 3600

    slept = throttle.read(5000, sleep=fake.sleep)

    assert slept == pytest.approx(5.0 - BURST_SECONDS)


def test_time_that_passes_between_two_spendings_counts() -> None:
    fake = FakeTime()
    throttle = Throttle(IoRates(total=1000), clock=fake.clock)
    throttle.read(1000, sleep=fake.sleep)
    fake.now += BURST_SECONDS + 0.5

    slept = throttle.read(1000, sleep=fake.sleep)

    assert slept == pytest.approx(1.0 - BURST_SECONDS)


def test_no_limit_never_waits() -> None:
    fake = FakeTime()
    throttle = Throttle(clock=fake.clock)

    assert throttle.read(1 << 50, sleep=fake.sleep) == 0


def test_a_faster_rate_shortens_a_wait_that_has_begun() -> None:
    fake = FakeTime()
    throttle = Throttle(IoRates(total=10), clock=fake.clock)

    def speed_up(seconds: float) -> bool:
        throttle.set_rates(IoRates())
        return fake.sleep(seconds)

    slept = throttle.read(1_000_000, sleep=speed_up)

    assert slept <= NAP_SECONDS_MAX


def test_a_limit_set_later_does_not_charge_for_what_was_free() -> None:
    fake = FakeTime()
    throttle = Throttle(clock=fake.clock)
    throttle.read(1 << 40, sleep=fake.sleep)
    throttle.set_rates(IoRates(total=1000))

    slept = throttle.read(1000, sleep=fake.sleep)

    assert slept == pytest.approx(1.0 - BURST_SECONDS)


def test_a_stop_ends_the_wait_at_once() -> None:
    fake = FakeTime()
    throttle = Throttle(IoRates(total=1), clock=fake.clock)

    slept = throttle.read(1_000_000, sleep=lambda _seconds: True)

    assert slept <= NAP_SECONDS_MAX


def test_one_sleeper_does_not_keep_others_from_the_lock() -> None:
    throttle = Throttle(IoRates(total=1_000_000), clock=time.monotonic)
    stop = threading.Event()
    sleeper = threading.Thread(target=lambda: throttle.read(1 << 40, sleep=stop.wait))
    sleeper.start()

    throttle.set_rates(IoRates(total=2_000_000))

    assert throttle.rates.total == 2_000_000
    stop.set()
    sleeper.join(timeout=30)
    assert not sleeper.is_alive()


def test_workers_share_one_rate() -> None:
    throttle = Throttle(IoRates(total=1_000_000), clock=time.monotonic)
    stop = threading.Event()

    def work() -> None:
        for _ in range(10):
            throttle.read(25_000, sleep=stop.wait)

    started = time.monotonic()
    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=30)

    assert time.monotonic() - started >= 0.5 - BURST_SECONDS - 0.01


def test_each_budget_holds_back_only_what_it_is_about() -> None:
    fake = FakeTime()
    throttle = Throttle(IoRates(read=1000, write=500), clock=fake.clock)

    assert throttle.read(1000, sleep=fake.sleep) == pytest.approx(1.0 - BURST_SECONDS)
    assert throttle.wrote(1000, sleep=fake.sleep) == pytest.approx(2.0 - BURST_SECONDS, abs=0.001)


def test_the_strictest_budget_decides() -> None:
    fake = FakeTime()
    throttle = Throttle(IoRates(total=100, read=1000), clock=fake.clock)
    throttle.set_guard_rate(200)

    assert throttle.read(1000, sleep=fake.sleep) == pytest.approx(10.0 - BURST_SECONDS)


def test_reads_and_writes_share_the_total() -> None:
    fake = FakeTime()
    throttle = Throttle(IoRates(total=1000), clock=fake.clock)

    throttle.read(1000, sleep=fake.sleep)
    throttle.wrote(1000, sleep=fake.sleep)

    assert fake.now - 100.0 == pytest.approx(2.0 - BURST_SECONDS, abs=0.001)


def test_while_lifted_no_budget_holds_and_nothing_is_owed_afterwards() -> None:
    fake = FakeTime()
    throttle = Throttle(IoRates(total=1000, read=1000), clock=fake.clock)
    throttle.set_guard_rate(10)
    throttle.lift(True)
    throttle.set_guard_rate(1000)

    assert throttle.read(1 << 40, sleep=fake.sleep) == 0

    throttle.lift(False)
    assert throttle.read(1000, sleep=fake.sleep) == pytest.approx(1.0 - BURST_SECONDS)


def test_a_wait_that_has_begun_ends_when_the_budgets_are_lifted() -> None:
    fake = FakeTime()
    throttle = Throttle(IoRates(write=1), clock=fake.clock)

    def lift(seconds: float) -> bool:
        throttle.lift(True)
        return fake.sleep(seconds)

    assert throttle.wrote(1_000_000, sleep=lift) <= NAP_SECONDS_MAX


def test_the_budget_of_a_topic_holds_besides_the_others_and_is_lifted_with_them() -> None:
    fake = FakeTime()
    throttle, topic = Throttle(IoRates(total=1000), clock=fake.clock), Budget(clock=fake.clock)
    topic.set_rate(100)

    assert throttle.read(100, sleep=fake.sleep) == pytest.approx(0.0, abs=0.01)
    assert throttle.read(100, sleep=fake.sleep, topic=topic) == pytest.approx(0.9, abs=0.05)
    assert throttle.wrote(100, sleep=fake.sleep, topic=topic) == pytest.approx(1.0, abs=0.05)
    throttle.lift(True)
    assert throttle.wrote(10_000, sleep=fake.sleep, topic=topic) == 0.0
