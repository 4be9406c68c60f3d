"""In no history is an erasure certified while a byte of the key is left, and each one ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from protocol.wire.numbers import OFFSET_MAX
from server.erasure.needs import Need, Next
from tests.harness.compacted_log import CONFIG, CompactedLog
from tests.harness.erased_log import ErasedLog

SEEDS = 400 if "KOMPAKT_SOAK" in os.environ else 12
STEPS = 80


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_history_leaves_a_byte_of_a_key_that_is_certified_as_erased(seed: int) -> None:
    history = ErasedLog(seed)

    history.play(STEPS)
    history.finish()

    assert history.certified >= len(history.erasures)


@pytest.mark.parametrize("seed", range(SEEDS // 4))
def test_older_values_do_not_outlive_an_erasure(seed: int) -> None:
    history = ErasedLog(seed, CompactedLog(replace(CONFIG, compaction_versions=3)))

    history.play(STEPS)
    history.finish()


def _no_suspects(patch: pytest.MonkeyPatch) -> None:
    """Files with readers are not waited for."""
    patch.setattr("tests.harness.erased_log.suspects_beside", lambda *_: frozenset())


def _no_sync(patch: pytest.MonkeyPatch) -> None:
    """Names that were removed may come back after a power cut."""
    patch.setattr("tests.harness.erased_log.left_of", lambda *_, **__: [])


def _no_proof(patch: pytest.MonkeyPatch) -> None:
    """What no pass has covered is read, and what was found does not count."""
    need = Need(Next.PROVE)
    patch.setattr("tests.harness.erased_log.need_of_records", lambda *_, **__: need)
    patch.setattr(ErasedLog, "_first", lambda *_: OFFSET_MAX)


@pytest.mark.parametrize("bug", [_no_suspects, _no_sync, _no_proof])
def test_these_histories_would_find_a_certificate_that_is_not_true(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)

    with pytest.raises(AssertionError):  # noqa: PT012 - some history finds it
        for seed in range(SEEDS):
            history = ErasedLog(seed)
            history.play(STEPS)
            history.finish()
