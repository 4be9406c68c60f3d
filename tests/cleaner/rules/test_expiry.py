"""When a value expires."""

from __future__ import annotations

import pytest

from cleaner.rules.expiry import NEVER, expires_ms, is_unreadable, ttl_of_header
from storage.formats.compaction_ttl import CompactionTtl
from storage.formats.config_property import LONG_MAX

BY_TOPIC = CompactionTtl(500)
BY_BOTH = CompactionTtl(500, "ttl")
BY_HEADER = CompactionTtl(header="ttl")


def test_a_topics_values_expire_its_time_after_their_timestamps() -> None:
    assert expires_ms(BY_TOPIC, timestamp=1000, headers=()) == 1500
    assert expires_ms(CompactionTtl(0), timestamp=1000, headers=()) == 1000


def test_without_a_time_no_value_expires() -> None:
    assert expires_ms(CompactionTtl(), timestamp=1000, headers=(("ttl", b"5"),)) == NEVER
    assert expires_ms(BY_HEADER, timestamp=1000, headers=()) == NEVER
    assert not CompactionTtl().is_set
    assert BY_HEADER.is_set
    assert CompactionTtl(0).is_set


def test_a_records_own_time_goes_before_the_topics_shorter_or_longer() -> None:
    for own in (b"5", b"5000", b"0"):
        expected = 1000 + int(own)
        assert expires_ms(BY_BOTH, timestamp=1000, headers=(("ttl", own),)) == expected
        assert expires_ms(BY_HEADER, timestamp=1000, headers=(("ttl", own),)) == expected


def test_of_several_headers_the_last_one_counts() -> None:
    headers = (("ttl", b"5"), ("other", b"1"), ("ttl", b"7"))

    assert expires_ms(BY_BOTH, timestamp=1000, headers=headers) == 1007


@pytest.mark.parametrize("value", [b"", b"-1", b"+1", b"1.5", b"1 ", b"\xd9\xa1", b"1" * 20])
def test_a_value_that_is_no_number_counts_as_absent_and_is_reported(value: bytes) -> None:
    headers = (("ttl", value),)

    assert expires_ms(BY_BOTH, timestamp=1000, headers=headers) == 1500
    assert expires_ms(BY_HEADER, timestamp=1000, headers=headers) == NEVER
    assert is_unreadable(BY_BOTH, headers)


def test_a_header_without_a_value_counts_as_absent() -> None:
    assert expires_ms(BY_BOTH, timestamp=1000, headers=(("ttl", None),)) == 1500
    assert not is_unreadable(BY_BOTH, (("ttl", None),))
    assert not is_unreadable(BY_BOTH, ())


def test_a_record_without_a_timestamp_never_expires() -> None:
    assert expires_ms(BY_TOPIC, timestamp=-1, headers=()) == NEVER


def test_numbers_too_large_mean_never() -> None:
    assert ttl_of_header(b"9" * 19) == LONG_MAX
    assert expires_ms(BY_HEADER, timestamp=1000, headers=(("ttl", b"9" * 19),)) == NEVER
    assert expires_ms(CompactionTtl(LONG_MAX), timestamp=1000, headers=()) == NEVER


def test_a_value_from_the_future_stays_until_its_time_has_come() -> None:
    assert expires_ms(BY_TOPIC, timestamp=10**15, headers=()) == 10**15 + 500
