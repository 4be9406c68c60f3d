"""Which offsets of two logs are compared, and what of them is wrong as a whole."""

from __future__ import annotations

import pytest

from pipeline.audit.span import Span, Spans, common_spans

LOG = {0: Span(start=0, end=10)}


def of(cleaned: dict[int, Span], *, may_end_early: bool = False) -> Spans:
    return common_spans(LOG, cleaned, may_end_early=may_end_early)


def test_what_both_have_is_compared() -> None:
    assert of({0: Span(start=0, end=12)}) == Spans(common=LOG, faults=(), notes=())


@pytest.mark.parametrize("may_end_early", [False, True])
def test_a_cleaned_log_that_ends_early_is_wrong_unless_that_is_allowed(
    may_end_early: bool,
) -> None:
    spans = of({0: Span(start=0, end=9)}, may_end_early=may_end_early)

    sentence = "partition 0 of the cleaned log ends at offset 9, the original at 10"
    assert spans.common == {0: Span(start=0, end=9)}
    assert spans.faults == (() if may_end_early else (sentence,))
    assert spans.notes == ((sentence,) if may_end_early else ())


def test_a_cleaned_log_may_start_later_and_that_is_said() -> None:
    spans = of({0: Span(start=4, end=10)})

    assert spans.common == {0: Span(start=4, end=10)}
    assert spans.faults == ()
    assert "starts at offset 4, the original at 0" in spans.notes[0]


def test_logs_that_do_not_meet_have_nothing_in_common() -> None:
    assert of({0: Span(start=20, end=30)}).common == {0: Span(start=20, end=20)}


def test_a_partition_that_is_missing_is_wrong_and_one_more_is_said() -> None:
    spans = of({1: Span(start=0, end=1)})

    assert spans.common == {}
    assert spans.faults == ("the cleaned log has no partition 0",)
    assert spans.notes == ("partition 1 is only in the cleaned log: it is not compared",)
