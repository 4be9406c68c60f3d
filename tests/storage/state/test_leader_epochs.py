from __future__ import annotations

import pytest

from protocol.wire.numbers import Epoch, Offset
from storage.files.errors import DamagedFile, FormatFromTheFuture
from storage.state.leader_epochs import LeaderEpochs, decode_leader_epochs


def epochs_of(*entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for epoch, start in entries:
        assert epochs.assign(Epoch(epoch), Offset(start))
    return epochs


def test_epoch_gets_its_entry_once_and_never_an_older_one() -> None:
    epochs = epochs_of((1, 0), (3, 10))
    assert not epochs.assign(Epoch(3), Offset(20))
    assert not epochs.assign(Epoch(2), Offset(20))
    assert epochs.entries == ((1, 0), (3, 10))
    assert epochs.latest == 3


def test_epoch_without_records_gives_way_to_the_next_one_at_its_offset() -> None:
    assert epochs_of((1, 0), (2, 10), (3, 10)).entries == ((1, 0), (3, 10))


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        pytest.param(0, (0, 5), id="below_the_first_is_where_the_first_begins"),
        pytest.param(1, (1, 10), id="ends_where_the_next_begins"),
        pytest.param(2, (1, 10), id="unknown_one_is_answered_by_the_one_before"),
        pytest.param(4, (4, 30), id="the_latest_ends_at_the_log_end"),
        pytest.param(5, (-1, -1), id="a_future_one_is_unknown"),
        pytest.param(-1, (-1, -1), id="none"),
    ],
)
def test_end_offset_for_epoch_is_kafkas(asked: int, answer: tuple[int, int]) -> None:
    """LeaderEpochFileCache.endOffsetFor."""
    assert epochs_of((1, 5), (3, 10), (4, 20)).end_offset(Epoch(asked), Offset(30)) == answer


def test_log_without_epochs_knows_no_end() -> None:
    assert LeaderEpochs().end_offset(Epoch(0), Offset(30)) == (-1, -1)


@pytest.mark.parametrize(
    ("offset", "epoch"),
    [(0, -1), (4, -1), (5, 1), (9, 1), (10, 3), (20, 4), (1000, 4)],
)
def test_every_offset_was_written_in_the_epoch_that_began_before_it(
    offset: int, epoch: int
) -> None:
    assert epochs_of((1, 5), (3, 10), (4, 20)).epoch_at(Offset(offset)) == epoch


@pytest.mark.parametrize(
    ("start", "entries"),
    [
        pytest.param(4, ((1, 5), (3, 10), (4, 20)), id="before_the_first"),
        pytest.param(5, ((1, 5), (3, 10), (4, 20)), id="at_the_first"),
        pytest.param(9, ((1, 9), (3, 10), (4, 20)), id="inside_an_epoch"),
        pytest.param(10, ((3, 10), (4, 20)), id="at_the_beginning_of_an_epoch"),
        pytest.param(19, ((3, 19), (4, 20)), id="at_the_end_of_an_epoch"),
        pytest.param(70, ((4, 70),), id="in_the_last"),
    ],
)
def test_epochs_begin_at_the_log_start_at_the_earliest(
    start: int, entries: tuple[tuple[int, int], ...]
) -> None:
    """LeaderEpochFileCache.truncateFromStart."""
    epochs = epochs_of((1, 5), (3, 10), (4, 20))
    assert epochs.truncate_from_start(Offset(start)) is (start > 5)
    assert epochs.entries == entries
    assert not epochs.truncate_from_start(Offset(start))


def test_leader_tells_its_epoch_before_its_first_append_and_notes_nothing() -> None:
    epochs = epochs_of((1, 5), (3, 10))
    assert epochs.with_leader_epoch(Epoch(3), Offset(30)).end_offset(Epoch(3), Offset(30)) == (
        3,
        30,
    )
    assert epochs.with_leader_epoch(Epoch(6), Offset(30)).end_offset(Epoch(6), Offset(30)) == (
        6,
        30,
    )
    assert epochs.with_leader_epoch(Epoch(6), Offset(30)).end_offset(Epoch(5), Offset(30)) == (
        3,
        30,
    )
    assert epochs.with_leader_epoch(Epoch(6), Offset(30)).epoch_at(Offset(30)) == 6
    assert epochs.entries == ((1, 5), (3, 10))


@pytest.mark.parametrize(
    ("epoch", "offset", "answer"),
    [
        pytest.param(3, 20, None, id="at_its_end"),
        pytest.param(3, 21, (3, 20), id="past_its_end"),
        pytest.param(2, 10, (1, 10), id="in_an_epoch_that_never_was"),
        pytest.param(4, 30, None, id="at_the_log_end"),
        pytest.param(0, 5, None, id="before_the_first_known_one"),
        pytest.param(5, 10, (-1, -1), id="in_a_future_one"),
    ],
)
def test_divergence_is_kafkas(epoch: int, offset: int, answer: tuple[int, int] | None) -> None:
    """Partition.readRecords."""
    assert (
        epochs_of((1, 5), (3, 10), (4, 20)).divergence(Epoch(epoch), Offset(offset), Offset(30))
        == answer
    )


def test_truncation_forgets_what_begins_past_it() -> None:
    epochs = epochs_of((1, 0), (3, 10), (4, 20))
    epochs.truncate_from_end(Offset(10), is_empty=False)
    assert epochs.entries == ((1, 0),)
    epochs.truncate_from_end(Offset(10), is_empty=True)
    assert epochs.latest == -1


def test_checkpoint_is_kafkas_text_and_is_read_back() -> None:
    epochs = epochs_of((1, 0), (3, 10))
    assert epochs.encode() == b"0\n2\n1 0\n3 10\n"
    assert decode_leader_epochs(epochs.encode(), "p").entries == epochs.entries
    assert decode_leader_epochs(LeaderEpochs().encode(), "p").entries == ()


@pytest.mark.parametrize(
    "data",
    [b"", b"0\n", b"0\n2\n1 0\n", b"0\n1\n1\n", b"0\nx\n", b"0\n2\n3 0\n1 5\n", b"\xff\n0\n"],
)
def test_damaged_checkpoint_is_noticed(data: bytes) -> None:
    with pytest.raises(DamagedFile):
        decode_leader_epochs(data, "p")


def test_checkpoint_of_a_later_release_is_refused() -> None:
    with pytest.raises(FormatFromTheFuture):
        decode_leader_epochs(b"1\n0\n", "p")
