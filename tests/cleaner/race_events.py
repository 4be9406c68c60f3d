"""Events that may happen to a log while a pass cleans it, and their effect on its records."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random

from protocol.wire.numbers import Offset
from storage.files.errors import MissingFile
from storage.files.paths import KEYS, join
from tests.cleaner.race_logs import RACE_CONFIG
from tests.cleaner.race_scene import Event, Scene
from tests.harness.compacted_log import DIRECTORY
from tests.harness.sidecar_mode import damage

COMPACT_DELETE = replace(RACE_CONFIG, cleanup_policy=("compact", "delete"), retention_ms=500)


def truncated_to(offset: int, boundary: int) -> Event:
    """Returns the effect of a truncation; the batch that contains the offset begins at `boundary`."""
    return Event(
        lambda scene: scene.log.truncate_to(Offset(offset)),
        lambda entries: [entry for entry in entries if entry[0] < boundary],
    )


def _truncate_and_write_others(scene: Scene) -> None:
    """Truncate, write different records at the same offsets, and roll."""
    scene.log.truncate_to(Offset(6))
    scene.race_is_over()
    scene.append((b"a", b"other"), (b"k", b"other"))
    scene.compacted.roll()
    scene.append((b"d", b"other"))
    scene.compacted.roll()


def _truncate_fully_and_append(scene: Scene) -> None:
    scene.log.truncate_fully_and_start_at(Offset(9))
    scene.race_is_over()
    scene.append((b"a", b"again"))
    scene.compacted.roll()


def _change_policy(scene: Scene) -> None:
    scene.log.update_config(replace(RACE_CONFIG, cleanup_policy=("delete",)))
    scene.log.wait_for_commit()


def delete_topic(scene: Scene) -> None:
    """Delete the topic's files as `LogDirectory.delete_topic` does."""
    scene.log.retire()
    topic_directory = DIRECTORY.rpartition("/")[0]
    scene.fs.rename(topic_directory, f"{topic_directory}.deleted")
    scene.fs.sync_directory("data")
    scene.fs.remove_tree(f"{topic_directory}.deleted")


def _write_more(scene: Scene) -> None:
    """Append more batches, and roll segments."""
    for number in range(2):
        scene.append((b"a", b"more %d" % number), (b"m", None))
        scene.compacted.roll()


def _remove_sidecars(scene: Scene) -> None:
    _befall_sidecars(scene, lambda path, _random: scene.fs.unlink(path))


def _damage_sidecars(scene: Scene) -> None:
    _befall_sidecars(scene, lambda path, random: damage(scene.fs, path, random))


def _befall_sidecars(scene: Scene, befall: Callable[[str, Random], None]) -> None:
    random = Random(scene.interleaving.steps[0])
    for name in scene.compacted.files():
        if name.endswith(KEYS) and random.random() < 0.5:
            with suppress(MissingFile):  # The pass has already replaced its segment.
                befall(join(DIRECTORY, name), random)


def _stop(scene: Scene) -> None:
    scene.is_stopping = True


EVENTS = {
    "truncation_deep": truncated_to(3, 3),
    "truncation_inside_a_batch": truncated_to(14, 13),
    "truncation_of_the_last_batch": truncated_to(15, 15),
    "truncation_and_other_records": Event(
        _truncate_and_write_others, lambda entries: [entry for entry in entries if entry[0] < 6]
    ),
    "truncation_of_everything": Event(_truncate_fully_and_append, lambda _entries: []),
    "delete_records": Event(
        lambda scene: scene.log.delete_records(Offset(7)),
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

HARMLESS_EVENTS = {
    "appends_and_rolls": Event(_write_more, forbids_swaps=False),
    "sidecars_removed": Event(_remove_sidecars, forbids_swaps=False),
    "sidecars_damaged": Event(_damage_sidecars, forbids_swaps=False),
}
"""Events that do not end a pass, because they do not change what its plan depends on."""
