"""Which commits of a source's group are written here."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocol.wire.numbers import Epoch, Offset
from server.replication.groups.group_offsets import Commit, Waits, clamped, commit_to_write


def commit(offset: int, epoch: int = 3, metadata: str = "m") -> Commit:
    return Commit(Offset(offset), Epoch(epoch), metadata)


def test_a_commit_goes_along_with_epoch_and_metadata() -> None:
    assert commit_to_write(commit(5), None, Offset(5)) == commit(5)
    assert commit_to_write(commit(5), commit(5, metadata="other"), Offset(9)) == commit(5)
    assert commit_to_write(commit(5), commit(5), Offset(9)) is Waits.NOTHING


def test_a_group_that_was_moved_back_at_the_source_is_moved_back_here() -> None:
    assert commit_to_write(commit(2), commit(5), Offset(9)) == commit(2)


def test_a_commit_beyond_the_mirrors_end_waits() -> None:
    assert commit_to_write(commit(6), None, Offset(5)) is Waits.FOR_RECORDS
    assert commit_to_write(commit(6), commit(5), Offset(5)) is Waits.FOR_RECORDS


def test_a_commit_that_a_cut_has_left_beyond_the_end_is_lowered_to_it() -> None:
    assert commit_to_write(commit(8), commit(7), Offset(5)) == clamped(commit(8), Offset(5))
    assert clamped(commit(8), Offset(5)) == Commit(Offset(5), Epoch(-1), "m")


Steps = st.lists(
    st.tuples(st.sampled_from(("commit", "copy", "cut", "sync")), st.integers(0, 20)), max_size=60
)


@given(steps=Steps)
def test_after_each_round_a_group_never_continues_beyond_what_is_here_or_consumed(
    steps: list[tuple[str, int]],
) -> None:
    theirs, here, end = commit(0), None, 0
    for step, number in [*steps, ("copy", 20), ("sync", 0)]:
        if step == "commit":
            theirs = commit(number, metadata=str(number))
        elif step == "copy":
            end += number
        elif step == "cut":
            end = max(0, end - number)
        else:
            decided = commit_to_write(theirs, here, Offset(end))
            here = decided if isinstance(decided, Commit) else here
            assert here is None or here.offset <= end
            assert decided is Waits.FOR_RECORDS or here is None or here.offset <= theirs.offset
    assert here == theirs
