"""The frames in memory answer as the log on disk does, or not at all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replog.entry import Frame, Kind
from replog.tail import Tail


def frame(index: int, *payloads: bytes, term: int = 1) -> Frame:
    return Frame(index, term, tuple((Kind.COMMAND, payload) for payload in payloads))


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 1)), min_size=1, max_size=12),
    st.integers(0, 20),
    st.integers(1, 40),
)
def test_it_gives_what_the_log_has_or_says_that_it_cannot(
    appended: list[tuple[int, int]], bytes_max: int, start: int
) -> None:
    tail, log, index, term = Tail(bytes_max), [], 1, 1
    for count, later in appended:
        term += later
        log.append(frame(index, *[b"xy"] * count, term=term))
        tail.appended(log[-1])
        index = log[-1].end

    found, known = tail.since(start), tail.term_at(start)

    assert found is None or found == [each for each in log if each.end > start]
    assert found is None or start <= index
    terms = {entry.index: entry.term for each in log for entry in each.entries()}
    assert known is None or known == terms[start]
    if bytes_max >= 2 * len(terms):
        assert (found is None) is (start > index)
        assert known == terms.get(start)


def test_a_gap_forgets_what_was_before() -> None:
    tail = Tail()
    tail.appended(frame(1, b"a"))
    tail.appended(frame(5, b"b"))
    assert tail.since(1) is None
    assert tail.since(5) == [frame(5, b"b")]
