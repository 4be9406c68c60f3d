from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocol.wire.numbers import Offset
from storage.formats.manifest import SegmentRow
from storage.undo.undo_file import EndedPass, EndReason, KeptPass, KeptSwap
from storage.undo.undo_rule import (
    ENDED_MAX,
    KEPT_MAX,
    Name,
    Stack,
    as_found,
    expired,
    name_of,
    refusal,
    with_start_at,
    within_bytes,
    within_count,
)


def row(base: int, version: int, end: int, size: int = 10) -> SegmentRow:
    return SegmentRow(
        base_offset=Offset(base), file_version=version, end_offset=Offset(end), size=size
    )


A, B, C = row(0, 1, 10), row(10, 2, 20), row(20, 3, 30)
D, E = row(0, 5, 20), row(0, 8, 30)
SEVEN = KeptPass(number=7, kept_ms=100, clean_offset=Offset(0), swaps=(KeptSwap((A, B), (D,)),))
NINE = KeptPass(number=9, kept_ms=200, clean_offset=Offset(20), swaps=(KeptSwap((D, C), (E,)),))
BOTH = Stack((SEVEN, NINE))


def names(*rows: SegmentRow) -> set[Name]:
    return {name_of(each) for each in rows}


def ends(stack: Stack) -> list[tuple[int, EndReason]]:
    return [(each.number, each.reason) for each in stack.ended]


def test_only_the_newest_pass_can_be_undone() -> None:
    assert refusal(BOTH, 9) is None
    assert refusal(BOTH, 7) == "later passes have to be undone before it, in this order: 9"


def test_a_refusal_says_why_a_pass_has_gone() -> None:
    stack = Stack((NINE,), (EndedPass(7, 5, EndReason.RETENTION),))

    assert refusal(stack, 7) == "retention or DeleteRecords removed a part of it"
    assert refusal(stack, 4) == (
        "nothing is kept of a pass with this number; those that can be undone are 9"
    )
    assert "no pass of the partition can be undone now" in str(refusal(Stack(), 4))


def test_a_pass_that_is_too_old_takes_those_below_it_along() -> None:
    assert expired(BOTH, 50, 149) == BOTH
    assert expired(BOTH, 50, 150) == Stack((NINE,), (EndedPass(7, 150, EndReason.EXPIRED),))
    young = KeptPass(number=7, kept_ms=10_000, clean_offset=Offset(0), swaps=SEVEN.swaps)
    assert ends(expired(Stack((young, NINE)), 50, 300)) == [
        (7, EndReason.EXPIRED),
        (9, EndReason.EXPIRED),
    ]


def test_beyond_the_bytes_the_oldest_pass_goes_first() -> None:
    assert within_bytes(BOTH, 40, 0) == BOTH
    assert within_bytes(BOTH, 39, 0) == Stack((NINE,), (EndedPass(7, 0, EndReason.BYTES),))
    assert within_bytes(BOTH, 19, 0).kept == ()


MANY = Stack(tuple(KeptPass(number=at, kept_ms=0, clean_offset=Offset(0)) for at in range(1000)))


def test_beyond_the_count_the_oldest_passes_go_first() -> None:
    assert within_count(BOTH, 0) == BOTH
    left = within_count(MANY, 3)

    assert [each.number for each in left.kept] == list(range(1000 - KEPT_MAX, 1000))
    assert left.ended[-1] == EndedPass(1000 - KEPT_MAX - 1, 3, EndReason.COUNT)
    assert "at most 200 passes" in str(refusal(left, 1000 - KEPT_MAX - 1))


def test_a_refusal_stays_short_however_many_passes_are_kept() -> None:
    assert refusal(MANY, 0) == (
        "later passes have to be undone before it, in this order: 999, 998, 997, 996, 995, and 994 older"
    )
    assert "999, 998, 997, 996, 995, and 995 older" in str(refusal(MANY, 5000))


def test_a_log_start_past_a_kept_segment_ends_its_pass() -> None:
    assert with_start_at(BOTH, Offset(9), 0) == BOTH
    assert with_start_at(BOTH, Offset(10), 0).kept == (NINE,)
    assert with_start_at(BOTH, Offset(20), 0).kept == ()


def test_the_last_reasons_are_remembered() -> None:
    stack = Stack()
    for number in range(ENDED_MAX + 5):
        stack = stack.with_newest(KeptPass(number=number, kept_ms=0, clean_offset=Offset(0)))
        stack = stack.end_newest(EndReason.UNDONE, 0)

    assert [each.number for each in stack.ended] == list(range(5, ENDED_MAX + 5))


# ---------------------------------------------------------------- what a crash leaves


def test_a_file_that_fits_its_manifest_holds() -> None:
    assert as_found(BOTH, names(E), Offset(0)) == BOTH


def test_a_swap_that_never_happened_is_ignored() -> None:
    assert as_found(BOTH, names(D, C), Offset(0)) == Stack((SEVEN,))


def test_the_swaps_of_a_pass_that_happened_stay() -> None:
    second = KeptSwap((C,), (row(20, 9, 30),))
    both = KeptPass(
        number=7, kept_ms=0, clean_offset=Offset(0), swaps=(KeptSwap((A, B), (D,)), second)
    )

    (found,) = as_found(Stack((both,)), names(D, C), Offset(0)).kept

    assert found.swaps == (KeptSwap((A, B), (D,)),)


def test_a_pass_that_is_undone_is_ignored() -> None:
    assert as_found(Stack((SEVEN,)), names(A, B, C), Offset(0)) == Stack()


def test_a_pass_that_does_not_fit_ends_with_those_below_it() -> None:
    found = as_found(BOTH, names(row(0, 11, 30)), Offset(0))

    assert ends(found) == [(7, EndReason.LOST), (9, EndReason.LOST)]


def test_a_log_start_that_moved_before_the_crash_counts() -> None:
    assert as_found(BOTH, names(E), Offset(10)).kept == (NINE,)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Stack, list[set[Name]]]:
    """A stack of passes of several swaps, and the segments listed before the first and after each."""
    listed = [row(10 * at, at + 1, 10 * at + 10) for at in range(6)]
    states, kept, version = [names(*listed)], [], 100
    for number in range(draw(st.integers(0, 4))):
        swaps: list[KeptSwap] = []
        for _ in range(draw(st.integers(1, 3))):
            start = draw(st.integers(0, len(listed) - 1))
            end = draw(st.integers(start + 1, len(listed)))
            sources = tuple(listed[start:end])
            if any(each in swap.outputs for each in sources for swap in swaps):
                continue
            version += 1
            output = row(sources[0].base_offset, version, sources[-1].end_offset)
            listed[start:end] = [output]
            swaps.append(KeptSwap(sources, (output,)))
            states.append(names(*listed))
        if swaps:
            kept.append(
                KeptPass(number=number, kept_ms=0, clean_offset=Offset(0), swaps=tuple(swaps))
            )
    return Stack(tuple(kept)), states


@given(histories())
def test_a_crash_between_the_file_and_the_manifest_loses_only_the_last_swap(
    history: tuple[Stack, list[set[Name]]],
) -> None:
    stack, states = history

    assert as_found(stack, states[-1], Offset(0)) == stack
    if stack.kept:
        *below, newest = stack.kept
        shorter = KeptPass(
            number=newest.number, kept_ms=0, clean_offset=Offset(0), swaps=newest.swaps[:-1]
        )
        expected = (*below, shorter) if shorter.swaps else tuple(below)
        assert as_found(stack, states[-2], Offset(0)) == Stack(expected)
