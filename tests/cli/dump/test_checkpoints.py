"""What `kompakt dump-log` prints of a coordinator's checkpoint, and how `--verify` checks it."""

from __future__ import annotations

from dataclasses import replace

import xxhash

from cli.dump.checkpoints import coordinator_checkpoint, verify_checkpoint
from cli.dump.kinds import Kind, kind_of
from server.coordination.coordinator_topic import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from storage.files.paths import PART
from storage.formats.coordinator_checkpoint import (
    FOOTER_BYTES,
    HEADER_BYTES,
    decode_header,
    encode_header,
)
from storage.formats.log_identity import LogIdentity
from storage.formats.topic_partition import TopicPartition
from storage.verify.findings import Severity
from tests.harness.checkpointed_log import PATH, CheckpointedLog, group_record
from tests.harness.compacted_log import identity
from tests.harness.offsets_model import Commit, Tombstones


def log_with_checkpoint() -> CheckpointedLog:
    log = CheckpointedLog()
    log.play(Commit("a", (0, 1)))
    log.play(Commit("b", (0,), 1000))
    log.make()
    log.play(Commit("a", (1,)))
    return log


def on_disk(log: CheckpointedLog, topic: str = OFFSETS_TOPIC) -> LogIdentity:
    """Stop the broker. Returns the log as a verification finds it."""
    log.reopen(is_clean=True)
    return replace(identity(), topic_partition=TopicPartition(topic, 0))


def findings_of(log: CheckpointedLog, topic: str = OFFSETS_TOPIC) -> list[tuple[Severity, str]]:
    found = verify_checkpoint(log.fs, on_disk(log, topic))
    return [(each.severity, each.text) for each in found]


def test_a_checkpoint_is_printed_with_its_records() -> None:
    log = log_with_checkpoint()

    assert kind_of(log.fs, PATH) is Kind.COORDINATOR_CHECKPOINT
    section = coordinator_checkpoint(log.fs, PATH)

    assert section.facts["end_offset"] == 3
    assert section.facts["records"] == 3
    rows = list(section.rows)
    assert [(row["offset"], row["producer_id"]) for row in rows] == [(0, -1), (1, -1), (2, 1000)]


def test_a_sound_checkpoint_has_no_finding() -> None:
    assert findings_of(log_with_checkpoint()) == []


def test_a_checkpoint_of_transactional_ids_is_verified_by_their_rules() -> None:
    log = CheckpointedLog()
    log.add_pairs([(b"x", b"1"), (b"y", b"1")])
    log.make(has_commits=False)
    log.add_pairs([(b"x", None)])

    assert findings_of(log, TRANSACTION_STATE_TOPIC) == []


def test_damage_is_found_and_costs_only_time() -> None:
    log = log_with_checkpoint()
    data = bytearray(log.checkpoint or b"")
    data[HEADER_BYTES + 70] ^= 1
    log.put(bytes(data))

    ((severity, text),) = findings_of(log)

    assert severity is Severity.WARNING
    assert "a start reads the whole log instead" in text


def test_a_checkpoint_that_a_pass_has_overtaken_is_explained() -> None:
    log = log_with_checkpoint()
    log.end(1000, is_commit=True)
    log.play(Commit("a", (1,)))
    log.add(group_record("tail", 1))
    log.clean()

    ((severity, text),) = findings_of(log)

    assert severity is Severity.NOTE
    assert "does not count" in text


def test_a_checkpoint_with_another_state_than_the_log_is_an_error() -> None:
    """Which only a mistake in making one can leave: it is sound and fits the log."""
    log = CheckpointedLog()
    log.play(Commit("a", (0, 1)))
    log.make()
    wrong = log.checkpoint or b""
    log.play(Tombstones("a", (0,)))
    log.make()
    header = decode_header((log.checkpoint or b"")[:HEADER_BYTES], PATH)
    log.put(_with_header(wrong, encode_header(header)))

    ((severity, text),) = findings_of(log)

    assert severity is Severity.ERROR
    assert "another state" in text


def _with_header(checkpoint: bytes, header: bytes) -> bytes:
    body = header + checkpoint[HEADER_BYTES:-16]
    assert len(checkpoint) > HEADER_BYTES + FOOTER_BYTES
    return body + xxhash.xxh3_128_digest(body)


def test_an_unfinished_one_is_a_note() -> None:
    log = CheckpointedLog()
    log.play(Commit("a", (0,)))
    log.fs.write_bytes(PATH + PART, b"x")

    ((severity, text),) = findings_of(log)

    assert severity is Severity.NOTE
    assert "unfinished" in text
