"""What may happen to a log while a pass cleans it, and what it leaves of the log's records."""

from __future__ import annotations

from dataclasses import replace

from tests.cleaner.race_logs import RACE_CONFIG
from tests.cleaner.race_scene import Event, Scene
from tests.harness.compacted_log import DIRECTORY

COMPACT_DELETE = replace(RACE_CONFIG, cleanup_policy=("compact", "delete"), retention_ms=500)


def truncated_to(offset: int, boundary: int) -> Event:
    """Truncate to an offset; the batch across it begins at `boundary`."""
    return Event(
        lambda scene: scene.log.truncate_to(offset),
        lambda entries: [entry for entry in entries if entry[0] < boundary],
    )


def _truncate_and_write_others(scene: Scene) -> None:
    """What was cut off is written anew, with other contents at the same offsets, and rolled."""
    scene.log.truncate_to(6)
    scene.race_is_over()
    scene.append((b"a", b"other"), (b"k", b"other"))
    scene.compacted.roll()
    scene.append((b"d", b"other"))
    scene.compacted.roll()


def _start_anew(scene: Scene) -> None:
    scene.log.truncate_fully_and_start_at(9)
    scene.race_is_over()
    scene.append((b"a", b"anew"))
    scene.compacted.roll()


def _change_policy(scene: Scene) -> None:
    scene.log.update_config(replace(RACE_CONFIG, cleanup_policy=("delete",)))
    scene.log.settle()


def delete_topic(scene: Scene) -> None:
    """As `LogDirectory.delete_topic` does."""
    scene.log.retire()
    topic_directory = DIRECTORY.rpartition("/")[0]
    scene.fs.rename(topic_directory, f"{topic_directory}.deleted")
    scene.fs.sync_directory("data")
    scene.fs.remove_tree(f"{topic_directory}.deleted")


def _stop(scene: Scene) -> None:
    scene.is_stopping = True


EVENTS = {
    "truncation_deep": truncated_to(3, 3),
    "truncation_inside_a_batch": truncated_to(14, 13),
    "truncation_of_the_last_batch": truncated_to(15, 15),
    "truncation_and_other_records": Event(
        _truncate_and_write_others, lambda entries: [entry for entry in entries if entry[0] < 6]
    ),
    "truncation_of_everything": Event(_start_anew, lambda _entries: []),
    "delete_records": Event(
        lambda scene: scene.log.delete_records(7),
        lambda entries: [entry for entry in entries if entry[0] >= 7],
        forbids_swaps=False,
        moves_groups=True,
    ),
    "delete_records_up_to_the_end": Event(
        lambda scene: scene.log.delete_records(scene.log.high_watermark),
        lambda _entries: [],
        forbids_swaps=False,
    ),
    "retention_of_all_segments": Event(
        lambda scene: scene.log.retain(scene.compacted.now_ms),
        lambda _entries: [],
        config=COMPACT_DELETE,
        forbids_swaps=False,
    ),
    "policy_change": Event(_change_policy),
    "deletion": Event(delete_topic, lambda _entries: [], forbids_swaps=False),
    "shutdown": Event(_stop, forbids_swaps=False),
}
