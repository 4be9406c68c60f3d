"""What `python -m bench` writes and shows of a group."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from bench import __main__ as bench_main
from bench.base.figure import Skipped, of_pairs

FIGURE = of_pairs("produce", "MB/s", [(3.0, 2.0)], limit_is="the disk")
SKIPPED = Skipped("heartbeats", "it does not serve [Heartbeat]")


@pytest.fixture
def console() -> Console:
    return Console(quiet=True)


@pytest.fixture(autouse=True)
def groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bench_main, "RESULTS", tmp_path)
    group = {"two": lambda pairs: [FIGURE, SKIPPED] * pairs}
    monkeypatch.setattr(bench_main, "GROUPS", group)
    monkeypatch.setattr(bench_main, "QUICK_GROUPS", group)
    monkeypatch.setattr(bench_main, "PAIRS", 2)


def test_the_results_have_the_figures_and_what_was_skipped_with_the_reason(
    tmp_path: Path, console: Console
) -> None:
    bench_main.run(console, "two", is_quick=False)

    document = json.loads((tmp_path / "two.json").read_text())
    assert document["figures"] == [FIGURE.as_json()] * 2
    assert (
        document["skipped"]
        == [{"name": "heartbeats", "reason": "it does not serve [Heartbeat]"}] * 2
    )


def test_a_quick_run_writes_nothing(tmp_path: Path, console: Console) -> None:
    bench_main.run(console, "two", is_quick=True)

    assert list(tmp_path.iterdir()) == []


def test_the_reason_is_shown_below_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    bench_main.run(Console(width=160), "two", is_quick=True)

    shown = capsys.readouterr().out
    assert shown.index("3.00 MB/s") < shown.index(
        "skipped: heartbeats: it does not serve [Heartbeat]"
    )
