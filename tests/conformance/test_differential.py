"""Apache Kafka's own cleaner and ours leave the same of every profile; `make differential` does more.

The rows of `Reason` are explained in tests/cleaner/README.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipeline.jars import JarsUnavailable
from tests.differential.run import run_workload
from tests.differential.workload import PROFILES, Profile, Workload
from tests.harness.kafka_cleaner import KafkaCleaner


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCleaner]:
    try:
        cleaner = KafkaCleaner()
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    with cleaner:
        yield cleaner


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_both_cleaners_leave_the_same(profile: Profile, kafka: KafkaCleaner) -> None:
    outcome = run_workload(Workload(profile=profile, codec=None, seed=1), kafka)

    assert outcome.unexplained == []
    assert 0 < outcome.records_left < outcome.records_appended
