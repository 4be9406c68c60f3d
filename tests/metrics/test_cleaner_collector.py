"""The cleaner as a whole in a scrape, under our names and Kafka's: each is seen to move."""

from __future__ import annotations

from tests.harness.scraped_world import Report, ScrapedWorld, Waiting, partition, quarantined


def test_the_cleaner_shows_its_passes_and_verdicts() -> None:
    world = ScrapedWorld()
    world.cleaner.pass_started("c", 0)
    world.cleaner.pass_started("c", 1)
    world.cleaner.pass_started("c", 2)
    world.cleaner.bytes_read(2000)
    world.cleaner.bytes_written(400)
    world.cleaner.throttled(0.5)
    world.cleaner.events_written(4)
    world.cleaner.events_lost(1)
    world.cleaner.pass_completed(Report())
    world.cleaner.pass_failed("c", 1, "broken")
    world.cleaner.space_checked({"/data/1": 5000, "/data/2": 7}, short_count=1)

    samples = world.samples()

    assert samples["kompakt_cleaner_passes_total", "completed"] == 1
    assert samples["kompakt_cleaner_passes_total", "failed"] == 1
    assert samples["kompakt_cleaner_passes_running",] == 1
    assert samples["kompakt_cleaner_oldest_pass_seconds",] > 0
    assert samples["kompakt_cleaner_records_total", "dropped_superseded"] == 6
    assert samples["kompakt_cleaner_records_total", "kept_latest"] == 4
    assert samples["kompakt_cleaner_read_bytes_total",] == 2000
    assert samples["kompakt_cleaner_written_bytes_total",] == 400
    assert samples["kompakt_cleaner_reclaimed_bytes_total",] == 600
    assert samples["kompakt_cleaner_moved_records_total",] == 3
    assert samples["kompakt_cleaner_untouched_bytes_total",] == 5000
    assert samples["kompakt_cleaner_untouched_segments_total",] == 3
    assert samples["kompakt_cleaner_key_sidecars_made_total",] == 2
    assert samples["kompakt_cleaner_throttled_seconds_total",] == 0.5
    assert samples["kompakt_cleaner_events_total", "written"] == 4
    assert samples["kompakt_cleaner_events_total", "lost"] == 1
    assert samples["kompakt_cleaner_verify_seconds_total",] == 0.25
    assert samples["kompakt_cleaner_directories_short_of_space",] == 1
    assert samples["kompakt_log_directory_free_bytes", "/data/2"] == 7
    assert samples["kompakt_cleaner_pass_seconds_bucket", "1.0"] == 1


def test_how_busy_the_threads_are_is_told_of_running_passes_too() -> None:
    world = ScrapedWorld(threads=2)
    name = "kompakt_cleaner_busy_seconds_total"
    assert world.samples()[name,] == 0
    world.cleaner.pass_started("c", 0)
    world.cleaner.pass_started("c", 1)

    assert world.samples()[name,] == 20, "two passes, ten seconds of each"
    world.cleaner.pass_completed(Report(partition=0))
    world.cleaner.pass_aborted("c", 1, "the broker stops")
    samples = world.samples()

    assert samples[name,] == 20
    assert samples["kompakt_cleaner_threads",] == 2


def test_kafka_s_gauges_of_threads_tell_of_the_last_pass_of_each() -> None:
    world = ScrapedWorld(threads=2)
    world.cleaner.pass_completed(Report(keys_mapped=90, seconds=100.0))
    world.cleaner.pass_completed(Report(keys_mapped=30, seconds=2.0))
    world.cleaner.pass_completed(
        Report(keys_mapped=50, seconds=1.0, bytes_before=3000, bytes_after=600, parts=4)
    )

    samples = world.samples()

    # The first of the three was the last of no thread.
    assert samples["kafka_log_logcleaner_max_buffer_utilization_percent",] == 50
    assert samples["kafka_log_logcleaner_max_clean_time_secs",] == 2
    assert samples["kafka_log_logcleaner_cleaner_recopy_percent",] == 25
    assert samples["kompakt_cleaner_map_parts_max",] == 4


def test_kafka_s_gauges_are_there_and_zero_before_the_first_pass() -> None:
    samples = ScrapedWorld().samples()

    for name in (
        "kafka_log_logcleaner_max_buffer_utilization_percent",
        "kafka_log_logcleaner_max_clean_time_secs",
        "kafka_log_logcleaner_cleaner_recopy_percent",
        "kafka_log_logcleaner_max_compaction_delay_secs",
        "kafka_log_logcleaner_deadthreadcount",
        "kafka_log_logcleanermanager_max_dirty_percent",
    ):
        assert samples[name,] == 0
    assert samples["kafka_log_logcleanermanager_uncleanable_bytes", "/data/2"] == 0


def test_the_dirtiest_and_the_latest_log_are_told_whatever_is_listed() -> None:
    world = ScrapedWorld(
        listed_max=0,
        partitions=[
            partition("c", 0, backlog=Waiting(dirty_ratio=0.75), overdue_ms=500),
            partition("c", 1, backlog=Waiting(dirty_ratio=0.5), overdue_ms=1500),
            partition("c", 2, backlog=Waiting()),
        ],
    )

    samples = world.samples()

    assert samples["kafka_log_logcleanermanager_max_dirty_percent",] == 75
    assert samples["kafka_log_logcleaner_max_compaction_delay_secs",] == 1.5
    assert samples["kompakt_cleaner_overdue_partitions",] == 2

    world.partitions.clear()

    assert world.samples()["kafka_log_logcleanermanager_max_dirty_percent",] == 0


def test_uncleanable_partitions_and_their_cleanable_bytes_are_told_by_log_directory() -> None:
    world = ScrapedWorld(
        partitions=[
            partition("c", 0, backlog=Waiting(cleanable_bytes=40)),
            partition("c", 1, backlog=Waiting(cleanable_bytes=50), size_bytes=9000),
            partition("c", 2, backlog=Waiting(cleanable_bytes=60), log_directory="/data/2"),
        ]
    )
    for number in (0, 1, 2):
        world.cleaner.quarantined(quarantined("c", number))
    world.cleaner.released("c", 2)

    samples = world.samples()

    name = "kafka_log_logcleanermanager_uncleanable_partitions_count"
    assert (samples[name, "/data/1"], samples[name, "/data/2"]) == (2, 0)
    name = "kafka_log_logcleanermanager_uncleanable_bytes"
    assert (samples[name, "/data/1"], samples[name, "/data/2"]) == (90, 0)


def test_the_time_since_logs_were_looked_at_grows_until_they_are() -> None:
    world = ScrapedWorld()
    name = "kafka_log_logcleanermanager_time_since_last_run_ms"
    assert (name,) not in world.samples(), "there is no cleaner"

    world.cleaner.picked(None)

    assert world.samples()[name,] == 10_000
    assert world.samples()[name,] == 20_000
    world.cleaner.picked(None)
    assert world.samples()[name,] == 10_000


def test_workers_that_have_ended_are_counted() -> None:
    assert ScrapedWorld(dead_workers=1).samples()["kafka_log_logcleaner_deadthreadcount",] == 1
