"""What every generated workload keeps to."""

from __future__ import annotations

import pytest

from tests.differential.workload import PROFILES, SEGMENT_BYTES, Profile

RECORD_BYTES_BESIDE_VALUE = 200


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_no_batch_can_be_larger_than_a_segment(profile: Profile) -> None:
    assert profile.records[1] * (profile.value_bytes[1] + RECORD_BYTES_BESIDE_VALUE) < SEGMENT_BYTES
