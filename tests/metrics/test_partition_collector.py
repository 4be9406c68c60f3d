"""Partitions and topics in a scrape: so many at most, the ones that matter, and sums of all."""

from __future__ import annotations

from metrics.names import METRICS
from tests.harness.scraped_world import Report, ScrapedWorld, Waiting, partition, quarantined

OURS_BY_TOPIC = [
    metric.name
    for metric in METRICS
    if metric.name.startswith("kompakt_topic_") and metric.labels == ("topic",)
]


def dirty(topic: str, number: int, dirty_bytes: int) -> object:
    return partition(topic, number, backlog=Waiting(dirty_bytes=dirty_bytes))


def test_a_partition_shows_its_offsets_under_kafka_s_names() -> None:
    samples = ScrapedWorld(partitions=[partition("plain", 0)]).samples()

    assert samples["kafka_topic_partitions", "plain"] == 1
    assert samples["kafka_brokers",] == 1
    assert samples["kafka_topic_partition_oldest_offset", "plain", "0"] == 3
    assert samples["kafka_topic_partition_current_offset", "plain", "0"] == 40
    assert samples["kafka_log_log_logstartoffset", "plain", "0"] == 3
    assert samples["kafka_log_log_logendoffset", "plain", "0"] == 42
    assert samples["kafka_log_log_size", "plain", "0"] == 1000
    assert samples["kafka_log_log_numlogsegments", "plain", "0"] == 2
    assert samples["kafka_cluster_partition_laststableoffsetlag", "plain", "0"] == 2


def test_a_compacted_partition_shows_what_waits_for_the_cleaner_and_another_does_not() -> None:
    backlog = Waiting(
        dirty_bytes=700,
        cleanable_bytes=500,
        dirty_ratio=0.25,
        offset_lag=35,
        tombstones_count=4,
        tombstone_bytes=44,
        tombstones_due_ms=1_700_000_003_500,
        key_sidecar_bytes=240,
        horizon_ms=1_700_000_000_500,
    )
    compacted = partition("c", 1, clean_offset=7, backlog=backlog, overdue_ms=1500, records=12)

    samples = ScrapedWorld(partitions=[partition("plain", 0), compacted]).samples()

    assert samples["kompakt_log_clean_offset", "c", "1"] == 7
    assert samples["kompakt_log_dirty_bytes", "c", "1"] == 700
    assert samples["kompakt_log_cleanable_bytes", "c", "1"] == 500
    assert samples["kompakt_log_dirty_ratio", "c", "1"] == 0.25
    assert samples["kompakt_log_clean_offset_lag", "c", "1"] == 35
    assert samples["kompakt_log_overdue_seconds", "c", "1"] == 1.5
    assert samples["kompakt_log_records", "c", "1"] == samples["kompakt_topic_records", "c"] == 12
    assert samples["kompakt_log_tombstones", "c", "1"] == 4
    assert samples["kompakt_log_tombstone_bytes", "c", "1"] == 44
    assert samples["kompakt_topic_tombstone_bytes", "c"] == 44
    due = samples["kompakt_log_tombstones_due_timestamp_seconds", "c", "1"]
    assert due == samples["kompakt_topic_tombstones_due_timestamp_seconds_max", "c"]
    assert due == 1_700_000_003.5
    assert samples["kompakt_log_key_sidecar_bytes", "c", "1"] == 240
    assert samples["kompakt_topic_key_sidecar_bytes", "c"] == 240
    horizon = samples["kompakt_log_delete_horizon_timestamp_seconds", "c", "1"]
    assert horizon == 1_700_000_000.5
    ours = [
        name for name, *labels in samples if name.startswith("kompakt_log_") and "plain" in labels
    ]
    assert not ours


def test_what_passes_would_free_is_added_up_and_its_errors_are_independent() -> None:
    samples = ScrapedWorld(
        partitions=[
            partition(
                "c", number, backlog=Waiting(), reclaimable_bytes=100, reclaimable_error_bytes=error
            )
            for number, error in enumerate((3, 4))
        ]
        + [partition("c", 2, backlog=Waiting())]
    ).samples()

    assert samples["kompakt_log_reclaimable_bytes", "c", "1"] == 100
    assert samples["kompakt_log_reclaimable_error_bytes", "c", "1"] == 4
    assert samples["kompakt_topic_reclaimable_bytes", "c"] == 200
    assert samples["kompakt_topic_reclaimable_error_bytes", "c"] == 5
    assert ("kompakt_log_reclaimable_bytes", "c", "2") not in samples


def test_passes_and_what_they_freed_are_counted_by_partition() -> None:
    world = ScrapedWorld(
        partitions=[partition("c", number, backlog=Waiting()) for number in range(3)]
    )
    world.cleaner.pass_completed(Report(partition=0, bytes_before=1000, bytes_after=400))
    world.cleaner.pass_completed(Report(partition=0, bytes_before=100, bytes_after=100))
    world.cleaner.pass_failed("c", 1, "broken")
    world.cleaner.pass_aborted("c", 1, "the broker stops")

    samples = world.samples()

    assert samples["kompakt_log_passes_total", "c", "0", "completed"] == 2
    assert samples["kompakt_log_passes_total", "c", "1", "failed"] == 1
    assert samples["kompakt_log_passes_total", "c", "1", "aborted"] == 1
    assert samples["kompakt_log_reclaimed_bytes_total", "c", "0"] == 600
    assert samples["kompakt_topic_reclaimed_bytes_total", "c"] == 600
    assert samples["kompakt_topic_passes_total", "c", "completed"] == 2
    assert samples["kompakt_log_seconds_since_pass", "c", "0"] == 10
    assert world.samples()["kompakt_log_seconds_since_pass", "c", "0"] == 20
    assert ("kompakt_log_seconds_since_pass", "c", "1") not in samples
    assert ("kompakt_log_passes_total", "c", "2", "completed") not in samples


def test_a_partition_in_quarantine_is_shown_with_the_kind_of_its_error() -> None:
    world = ScrapedWorld(partitions=[partition("c", 1, backlog=Waiting())])
    world.cleaner.quarantined(quarantined("c", 1, failures=3))

    samples = world.samples()

    assert samples["kompakt_log_quarantine_failures", "c", "1", "corrupt_batch"] == 3
    assert samples["kompakt_topic_quarantined_partitions", "c"] == 1

    world.cleaner.released("c", 1)

    assert not [name for name, *_ in world.samples() if "quarantine" in name]


def test_damaged_segments_are_shown_until_a_pass_finds_none() -> None:
    world = ScrapedWorld(
        partitions=[partition("c", number, backlog=Waiting()) for number in range(3)], listed_max=1
    )
    for number, size in enumerate((300, 700)):
        world.cleaner.pass_completed(Report(partition=number, fenced_bytes=size))

    samples = world.samples()

    assert samples["kompakt_log_fenced_bytes", "c", "1"] == 700
    assert ("kompakt_log_fenced_bytes", "c", "0") not in samples, "one is listed"
    assert samples["kompakt_topic_fenced_partitions", "c"] == 2

    for number in range(2):
        world.cleaner.pass_completed(Report(partition=number))

    names = {name for name, *_ in world.samples()}
    assert not {"kompakt_log_fenced_bytes", "kompakt_topic_fenced_partitions"} & names


def test_a_scrape_lists_the_largest_partitions_and_the_same_for_all_of_kafka_s_names() -> None:
    partitions = [partition("t", number, size_bytes=number % 7) for number in range(10)]

    samples = ScrapedWorld(partitions=partitions, listed_max=3).samples()

    for name in ("kafka_log_log_size", "kafka_topic_partition_current_offset"):
        assert [labels for each, *labels in samples if each == name] == [
            ["t", "6"],
            ["t", "5"],
            ["t", "4"],
        ]
    assert samples["kompakt_partitions_unlisted",] == 7
    assert samples["kafka_server_replicamanager_partitioncount",] == 10


def test_of_each_metric_the_partitions_with_the_largest_values_are_listed() -> None:
    partitions = [
        partition(
            "t",
            number,
            backlog=Waiting(dirty_bytes=number, offset_lag=-number, horizon_ms=1000 * number),
        )
        for number in range(10)
    ]

    samples = ScrapedWorld(partitions=partitions, listed_max=2).samples()

    def listed(name: str) -> list[str]:
        return [labels[1] for each, *labels in samples if each == name]

    assert listed("kompakt_log_dirty_bytes") == ["9", "8"]
    assert listed("kompakt_log_clean_offset_lag") == ["0", "1"]
    assert listed("kompakt_log_delete_horizon_timestamp_seconds") == ["0", "1"]


def test_what_a_topic_shows_leaves_no_partition_out() -> None:
    partitions = [
        partition(
            "t",
            number,
            backlog=Waiting(
                dirty_bytes=100, dirty_ratio=number / 10, horizon_ms=1000 * (number + 5)
            ),
        )
        for number in range(10)
    ]

    samples = ScrapedWorld(partitions=partitions, listed_max=2).samples()

    assert samples["kompakt_topic_dirty_bytes", "t"] == 1000
    assert samples["kompakt_topic_dirty_ratio_max", "t"] == 0.9
    assert samples["kompakt_topic_delete_horizon_timestamp_seconds_min", "t"] == 5


def test_topics_are_bounded_as_partitions_are() -> None:
    world = ScrapedWorld(listed_max=2)
    for number in range(6):
        topic = f"t{number}"
        backlog = Waiting(dirty_bytes=number, horizon_ms=number, tombstones_due_ms=number)
        estimate = {"reclaimable_bytes": number, "reclaimable_error_bytes": number}
        estimate["records"] = number
        world.partitions.append(partition(topic, 0, backlog=backlog, **estimate))
        world.cleaner.pass_completed(Report(topic=topic, fenced_bytes=1))
        world.cleaner.quarantined(quarantined(topic, 0))

    samples = world.samples()

    for name in OURS_BY_TOPIC:
        assert len([each for each, *_ in samples if each == name]) == 2, name
    assert ("kompakt_topic_dirty_bytes", "t5") in samples
    assert (
        len({labels[0] for each, *labels in samples if each == "kompakt_topic_passes_total"}) == 2
    )


def test_a_partition_that_is_gone_or_no_longer_compacted_is_not_shown() -> None:
    world = ScrapedWorld(partitions=[partition("c", 0, backlog=Waiting())])
    world.cleaner.pass_completed(Report(fenced_bytes=1))
    world.cleaner.quarantined(quarantined("c", 0))
    assert world.samples()["kompakt_log_passes_total", "c", "0", "completed"] == 1

    world.partitions = [partition("c", 0)]

    assert not [
        name for name, *labels in world.samples() if name.startswith("kompakt_log") and labels
    ]


def test_a_deleted_topic_leaves_no_counts_behind() -> None:
    world = ScrapedWorld(partitions=[partition("c", 0, backlog=Waiting())])
    world.cleaner.pass_completed(Report())
    world.cleaner.topic_deleted("c")

    assert not world.cleaner.partitions
    assert ("kompakt_log_passes_total", "c", "0", "completed") not in world.samples()


def test_an_internal_partition_has_series_of_its_own_once_it_was_written_to() -> None:
    empty = {"log_start_offset": 0, "last_stable_offset": 0, "high_watermark": 0}
    unused = [
        partition(
            "__consumer_offsets", n, is_internal=True, log_end_offset=0, backlog=Waiting(), **empty
        )
        for n in range(49)
    ]
    used = partition("__consumer_offsets", 49, is_internal=True, backlog=Waiting(dirty_bytes=5))
    empty_topic = partition("empty", 0, log_end_offset=0, **empty)

    samples = ScrapedWorld(partitions=[*unused, used, empty_topic]).samples()

    sizes = [labels for name, *labels in samples if name == "kafka_log_log_size"]
    offsets = {tuple(labels) for _, *labels in samples if labels[:1] == ["__consumer_offsets"]}
    assert sorted(sizes) == [["__consumer_offsets", "49"], ["empty", "0"]]
    assert {number for _, number in filter(lambda each: len(each) == 2, offsets)} <= {
        "49",
        "active",
    }
    assert samples["kompakt_partitions_unlisted",] == 0
    assert samples["kafka_topic_partitions", "__consumer_offsets"] == 50
    assert samples["kompakt_topic_dirty_bytes", "__consumer_offsets"] == 5
