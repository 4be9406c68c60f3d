"""No slice of the loop ends in these tests: the path of a request must not depend on the machine."""

from __future__ import annotations

import pytest

from server.runtime import turns


@pytest.fixture(autouse=True)
def _slices_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SLICE_SECONDS", 3600.0)
