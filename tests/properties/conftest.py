"""What random histories need of the modules under test; a file asks for it with `usefixtures`."""

from __future__ import annotations

import pytest

from cleaner.rules import cleaning_plan


@pytest.fixture
def sweeps_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes for older values need no pause, so that the model knows what is left."""
    monkeypatch.setattr(cleaning_plan, "SWEEP_PAUSE_MS_MIN", 0)


@pytest.fixture
def directories_without_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness's logs are in directories without their topic's id."""
    monkeypatch.setattr(
        "storage.ledger.ledger_settling.topic_directory", lambda topic, topic_id: topic
    )
