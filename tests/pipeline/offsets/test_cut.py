"""What a table holds, as a value: kept, joined, and compared with what a broker has."""

from __future__ import annotations

import pytest

from pipeline.offsets.cut import Cut, TableRefused, TopicOffsets, refuse_taken_back, start_of_stream

HELD = Cut({"orders": {0: 10, 1: 4}}, {"orders": "id-1"})


def broker(
    first: dict[int, int], end: dict[int, int], topic_id: str = "id-1", topic: str = "orders"
) -> TopicOffsets:
    return TopicOffsets({topic: topic_id}, {topic: first}, {topic: end})


def test_a_cut_survives_being_written_beside_what_others_write() -> None:
    assert Cut.from_json(HELD.to_json()) == HELD
    assert Cut.from_json(None) is None
    assert Cut.from_json("") is None
    assert Cut.from_json('{"somebody": "else"}') is None
    assert Cut.from_json("[1]") is None


def test_a_cut_of_a_newer_format_is_refused() -> None:
    with pytest.raises(TableRefused, match="format 2"):
        Cut.from_json('{"kompakt": 2, "topics": {}}')


def test_a_cut_never_goes_back() -> None:
    assert HELD.advanced({"orders": {0: 7, 1: 9, 2: 1}}).offsets == {"orders": {0: 10, 1: 9, 2: 1}}


def test_a_stream_goes_on_at_the_cut_and_reads_a_new_partition_from_its_first_record() -> None:
    now = broker({0: 0, 1: 0, 2: 3}, {0: 12, 1: 4, 2: 5})

    assert start_of_stream(HELD, now, fail_on_data_loss=True).offsets == {
        "orders": {0: 10, 1: 4, 2: 3}
    }


@pytest.mark.parametrize(
    ("now", "sentence"),
    [
        (broker({0: 0, 1: 0}, {0: 12, 1: 4}, "id-2"), "created again .*id-1.*id-2"),
        (broker({0: 0, 1: 0}, {0: 9, 1: 4}), "orders-0 ends at 9, .* up to 10"),
        (broker({0: 0}, {0: 12}), "orders-1 ends at 0, .* up to 4"),
        (broker({0: 11, 1: 0}, {0: 12, 1: 4}), "orders-0 begins at 11, .* up to 10"),
        (broker({0: 0}, {0: 1}, topic="users"), "the table holds other topics: orders"),
    ],
)
def test_topics_that_do_not_go_on_from_the_cut_are_refused(
    now: TopicOffsets, sentence: str
) -> None:
    with pytest.raises(TableRefused, match=sentence):
        start_of_stream(HELD, now, fail_on_data_loss=True)


def test_records_that_are_gone_are_suffered_where_the_user_says_so() -> None:
    now = broker({0: 11, 1: 0}, {0: 12, 1: 4})

    assert start_of_stream(HELD, now, fail_on_data_loss=False).offsets["orders"][0] == 11


@pytest.mark.parametrize("held", [None, HELD, Cut({"orders": {0: 12, 1: 3, 2: 7}}, {})])
def test_a_table_that_holds_less_than_the_stream_has_brought_it_to_is_refused(
    held: Cut | None,
) -> None:
    reached = Cut({"orders": {0: 11, 1: 4}}, {})

    with pytest.raises(TableRefused, match=r"held orders-[01] up to (11|4) and now holds it up to"):
        refuse_taken_back(held, reached)


def test_a_table_that_holds_as_much_or_more_is_not() -> None:
    refuse_taken_back(HELD, HELD)
    refuse_taken_back(HELD.advanced({"orders": {0: 20}}), HELD)
    refuse_taken_back(None, None)
    refuse_taken_back(HELD, None)
