"""The README's table of performance is the one that the results give, and reads as it should."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.base.figure import Figure, bound_rank, of_pairs
from bench.peers.readme import README, RESULTS, performance_table, with_table

KAFKA = "Apache Kafka 4.3.1"


def document(*figures: Figure) -> dict[str, Any]:
    machine = {"cores": 2, "python": "3.11.7"}
    return {
        "taken": "2026-11-28",
        "machine": machine,
        "figures": [figure.as_json() for figure in figures],
    }


def test_the_readme_has_the_figures_of_the_results() -> None:
    text = README.read_text("utf-8")
    assert with_table(text, json.loads(RESULTS.read_text("utf-8"))) == text


def test_a_time_is_ahead_by_how_much_shorter_it_is() -> None:
    taken = [(2.0, 8.0), (2.0, 10.0), (2.0, 6.0)]
    figure = of_pairs("a pass", "s", taken, limit_is=f"{KAFKA} (less is better)")
    table = performance_table(document(figure), ["a pass"])
    assert "| a pass | 2 s | 8 s | 4.00 (3.00 to 5.00) |  |" in table


def test_a_rate_has_its_cpu_beside_it() -> None:
    note = "12 µs of CPU a request (peer 30)"
    figure = of_pairs("produce", "MB/s", [(300.0, 200.0)], limit_is=KAFKA, note=note)
    table = performance_table(document(figure), ["produce"])
    assert "| produce | 300 MB/s | 200 MB/s | 1.50 | 12 µs, 30 |" in table


def test_a_figure_that_is_not_shown_is_left_out_and_one_that_is_missing_is_an_error() -> None:
    figure = of_pairs("latency", "ms", [(3.0, 2.0)], limit_is="ping-pong + fdatasync")
    other = of_pairs("produce", "MB/s", [(3.0, 2.0)], limit_is=KAFKA)
    assert "latency" not in performance_table(document(figure, other), ["produce"])
    with pytest.raises(KeyError):
        performance_table(document(figure), ["throughput"])


def test_the_lower_bound_of_a_median_is_that_of_the_sign_test() -> None:
    # https://en.wikipedia.org/wiki/Sign_test: 5 pairs are the least, 8 spare one, 11 two.
    assert [bound_rank(count) for count in (1, 5, 7, 8, 10, 11, 20)] == [0, 0, 0, 1, 1, 2, 5]
