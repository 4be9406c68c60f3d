"""What a proof waits for: files beside the log, of which only those for undos are dropped."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from server.erasure.erasures import _proof_of
from server.erasure.proofs import LogProof, left_of, suspects_beside, tombstones_at
from tests.harness.compacted_log import CONFIG, DIRECTORY, CompactedLog


def test_what_is_kept_for_undos_is_named_and_goes_only_with_a_proof() -> None:
    log = CompactedLog(config=replace(CONFIG, compaction_undo_ms=3_600_000))
    log.append_segment((b"a", b"1"), (b"b", b"1"))
    log.append_segment((b"a", b"2"), (b"b", b"2"))
    log.clean()
    assert log.log.passes_kept
    suspects = suspects_beside(log.fs, DIRECTORY, log.log.cleaning_view(as_if_rolled=True))

    left = left_of(log.fs, log.log, suspects, drops=False)
    assert {each.what for each in left} == {
        "a replaced segment that is kept so that its pass can be undone"
    }

    assert left_of(log.fs, log.log, suspects, drops=True) == []
    assert not log.log.passes_kept
    assert not any(log.fs.exists(each.path) for each in left)


def test_copies_that_appear_after_the_proof_are_not_waited_for() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    log.fs.write_bytes(f"{DIRECTORY}/cut.7.0", b"bytes")

    assert left_of(log.fs, log.log, frozenset(), drops=True) == []
    left = left_of(log.fs, log.log, frozenset([f"{DIRECTORY}/cut.7.0"]), drops=True)
    assert [each.what for each in left] == ["bytes that a recovery has cut off the log"]
    assert log.fs.exists(f"{DIRECTORY}/cut.7.0"), "it may be the last copy of something"


def test_a_tombstone_is_there_until_a_pass_has_dropped_it() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"a", None), (b"b", b"1"))
    assert tombstones_at(log.log, [1])[1].horizon_ms is None
    log.clean()
    (found,) = tombstones_at(log.log, [1]).values()
    assert (found.is_gone, found.horizon_ms) == (
        False,
        log.now_ms + log.log.config.delete_retention_ms,
    )
    log.now_ms += log.log.config.delete_retention_ms
    log.clean()

    assert tombstones_at(log.log, [1])[1].is_gone
    assert not tombstones_at(log.log, [9])[9].is_gone, "the log ends before"


def test_a_proof_does_not_hold_once_a_pass_was_undone() -> None:
    log = CompactedLog(config=replace(CONFIG, compaction_undo_ms=3_600_000))
    log.append_segment((b"a", b"1"), (b"b", b"1"))
    log.append_segment((b"a", b"2"), (b"b", b"2"))
    log.clean()
    nothing: Any = None
    proof = LogProof(traces=nothing, suspects=frozenset(), read_ms=0, rewrites=log.log.rewrites)
    tracked: Any = SimpleNamespace(proofs={0: proof})
    assert _proof_of(tracked, 0, log.log) is proof

    log.log.undo_pass(log.log.passes_kept[-1].number)

    assert not proof.holds_for(log.log)
    assert _proof_of(tracked, 0, log.log) is None
    assert tracked.proofs == {}
