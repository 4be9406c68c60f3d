"""The quarantine of partitions whose passes fail."""

from __future__ import annotations

from cleaner.pacing.quarantine import Quarantine, kind_of
from cleaner.passes.verify_pass import VerificationFailed
from storage.formats.topic_partition import TopicPartition

ORDERS = TopicPartition("orders", 3)
OTHER = TopicPartition("orders", 4)


def test_a_failed_partition_rests_and_is_then_due_while_others_go_on() -> None:
    quarantine = Quarantine(rest_ms=1000, rest_ms_max=60_000)

    quarantine.add(ORDERS, "bad CRC", kind="corrupt_batch", now=10.0)

    assert quarantine.is_resting(ORDERS, now=10.999)
    assert not quarantine.is_resting(ORDERS, now=11.0)
    assert not quarantine.is_resting(OTHER, now=10.0)


def test_the_rest_doubles_with_each_failure_up_to_its_bound() -> None:
    quarantine = Quarantine(rest_ms=1000, rest_ms_max=6000)

    rests = [
        quarantine.add(ORDERS, "bad CRC", kind="corrupt_batch", now=0.0).retry_at
        for _ in range(2000)
    ]

    assert rests[:5] == [1.0, 2.0, 4.0, 6.0, 6.0]
    assert rests[-1] == 6.0


def test_it_stays_listed_with_its_reason_while_due_for_a_retry() -> None:
    quarantine = Quarantine(rest_ms=1, rest_ms_max=1)

    quarantine.add(ORDERS, "bad CRC", kind="corrupt_batch", now=0.0)

    (entry,) = quarantine.entries()
    assert (entry.topic_partition, entry.reason, entry.failures) == (ORDERS, "bad CRC", 1)


def test_a_release_forgets_the_failures() -> None:
    quarantine = Quarantine(rest_ms=1000, rest_ms_max=60_000)
    quarantine.add(ORDERS, "bad CRC", kind="corrupt_batch", now=0.0)
    quarantine.add(ORDERS, "bad CRC", kind="corrupt_batch", now=0.0)

    assert quarantine.release(ORDERS)
    assert not quarantine.release(ORDERS)

    assert quarantine.add(ORDERS, "disk full", kind="corrupt_batch", now=0.0).failures == 1


def test_partitions_that_are_gone_are_named() -> None:
    quarantine = Quarantine(rest_ms=1000, rest_ms_max=60_000)
    quarantine.add(ORDERS, "bad CRC", kind="corrupt_batch", now=0.0)
    quarantine.add(OTHER, "bad CRC", kind="corrupt_batch", now=0.0)

    assert quarantine.missing_from([OTHER]) == (ORDERS,)


def test_an_error_s_name_is_one_word_for_metrics() -> None:
    class CRCWrong(Exception): ...

    assert kind_of(VerificationFailed()) == "verification_failed"
    assert kind_of(ValueError("orders-3")) == "value_error"
    assert kind_of(CRCWrong()).isidentifier()
