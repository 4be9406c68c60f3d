"""What follows from the counts over keys: the histogram of records a key, and skew."""

from __future__ import annotations

from array import array

from cleaner.keys.counts import (
    VersionsRow,
    classes_of,
    histogram,
    hottest_keys,
    merged_classes,
    records_of_hottest,
)
from tests.harness.key_model import CLASSES, count_class


def packed(*numbers: int) -> array[int]:
    """Returns the classes of keys with so many records each."""
    found = array("Q")
    for number in numbers:
        found = merged_classes(found, array("Q", (count_class(number), 1, number)))
    return found


def test_classes_rise_with_the_number_and_divide_each_doubling_by_sixteen() -> None:
    classes = [count_class(number) for number in range(1, 5000)]

    assert classes == sorted(classes)
    assert classes[:33] == list(range(33))
    assert count_class(64) == 47
    assert count_class(65) == 48
    assert count_class(2**32 - 1) == CLASSES - 1
    widths = [classes.count(each) / (classes.index(each) + 1) for each in set(classes)]
    assert max(widths[32:]) <= 1 / 16


def test_the_histogram_has_the_bounds_of_doublings() -> None:
    rows = histogram(packed(1, 1, 2, 3, 4, 5, 8, 32, 33, 64, 65, 1000, 1024, 1025))

    assert rows == [
        VersionsRow(1, 1, 2, 2),
        VersionsRow(2, 2, 1, 2),
        VersionsRow(3, 4, 2, 7),
        VersionsRow(5, 8, 2, 13),
        VersionsRow(17, 32, 1, 32),
        VersionsRow(33, 64, 2, 97),
        VersionsRow(65, 128, 1, 65),
        VersionsRow(513, 1024, 2, 2024),
        VersionsRow(1025, 2048, 1, 1025),
    ]


def test_each_number_is_within_the_bounds_of_its_row() -> None:
    for number in (*range(1, 3000), 2**20, 2**20 + 1, 2**31, 2**32 - 1):
        (row,) = histogram(packed(number))

        assert row.least <= number <= row.most
        assert (row.keys, row.records) == (1, number)


def test_no_keys_have_no_histogram() -> None:
    assert histogram(array("Q")) == []
    assert records_of_hottest(array("Q"), 0) == 0


def test_the_hottest_keys_have_the_records_of_the_highest_classes() -> None:
    classes = packed(1, 1, 1, 7, 101, 102)

    assert records_of_hottest(classes, 2) == 203
    assert records_of_hottest(classes, 1) == 101.5, "both are in one class"
    assert records_of_hottest(classes, 3) == 210
    assert records_of_hottest(classes, 4) == 211
    assert records_of_hottest(classes, 6) == 213


def test_the_hottest_hundredth_is_rounded_up() -> None:
    assert [hottest_keys(keys) for keys in (0, 1, 100, 101, 1000)] == [0, 1, 1, 2, 10]


def test_merged_classes_are_those_of_both() -> None:
    one, other = packed(1, 5, 5), packed(5, 9)

    assert classes_of(merged_classes(one, other)) == classes_of(packed(1, 5, 5, 5, 9))
