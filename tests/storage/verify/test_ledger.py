"""A ledger is verified against itself, against the segments, and against an anchor."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.wire.numbers import Offset
from storage.files.paths import LOG
from storage.files.signing_key import SigningKey
from storage.formats.content_digest import SHA256
from storage.formats.ledger_entry import encode_entry
from storage.ledger.cleaning_ledger import CleaningLedger
from storage.ledger.ledger_head import SignedHead, heads_from_json, signed_head
from storage.verify.ledger import LedgerReport, anchors_by_path
from tests.harness.compacted_log import CompactedLog, superseded_log
from tests.harness.ledgers import OWNER, clean_certified, entries_of, label, ledger_on, verified
from tests.harness.memory_fs import MemoryFileSystem

FIRST = "data/cleaning-ledger/00000000000000000000.ledger"


def certified_log(digest_kind: str = "xxh3") -> CompactedLog:
    """A log of one cleaned segment, certified, and its active one."""
    log = superseded_log()
    label(log.fs)
    clean_certified(log, ledger_on(log.fs), digest_kind=digest_kind)
    return log


def texts(report: LedgerReport) -> str:
    return "; ".join(each.text for each in report.findings)


def change_byte(fs: MemoryFileSystem, path: str, at: int, other: int = 1) -> None:
    data = bytearray(fs.read_bytes(path))
    data[at] = (data[at] + other) % 256
    fs.write_bytes(path, bytes(data))


@pytest.mark.parametrize("digest_kind", ["xxh3", SHA256])
def test_a_certified_log_is_sound(digest_kind: str) -> None:
    log = certified_log(digest_kind)

    report = verified(log.fs)

    assert report.is_sound, texts(report)
    assert (report.entries, report.first, report.head) == (3, 0, entries_of(log.fs)[-1].head)
    assert (report.passes, report.groups) == (1, 1)
    assert (report.segments, report.recomputed) == (1, 1)
    assert report.recomputed_bytes == log.log.segments[0].size


def test_a_directory_without_a_ledger_is_not_called_sound() -> None:
    log = superseded_log()
    log.clean()
    label(log.fs)

    report = verified(log.fs)

    assert not report.is_sound
    assert "there is no ledger, but there are segments that passes wrote" in texts(report)


def test_where_no_pass_wrote_anything_no_ledger_is_needed() -> None:
    report = verified(superseded_log().fs)

    assert report.is_sound
    assert "no segment that a pass wrote" in texts(report)


def test_another_byte_in_a_segment_is_noticed() -> None:
    log = certified_log()
    change_byte(log.fs, log.log.segments[0].path(LOG), -1)

    report = verified(log.fs)

    assert "its bytes are not those that the pass wrote" in texts(report)
    assert report.recomputed == 0


def test_a_missing_segment_is_noticed() -> None:
    log = certified_log()
    log.fs.unlink(log.log.segments[0].path(LOG))

    assert texts(verified(log.fs)) == "it is missing"


def test_a_segment_without_a_certificate_is_noticed() -> None:
    log = certified_log()
    log.append_segment((b"c", b"2"))
    log.now_ms += 1000
    log.clean()

    assert "no entry has it" in texts(verified(log.fs))


def test_segments_from_before_the_ledger_and_without_it_are_counted() -> None:
    log = superseded_log()
    label(log.fs)
    log.now_ms -= 1000
    log.clean()  # Before.
    log.now_ms += 1000
    ledger_on(log.fs).open()
    assert verified(log.fs).older == 1

    ledger_on(log.fs).turn_off()
    log.now_ms += 1000
    log.append_segment((b"c", b"2"))
    log.append_segment((b"c", b"3"))
    log.clean()  # Without.
    report = verified(log.fs)
    assert report.is_sound, texts(report)
    assert (report.older, report.without_ledger, report.segments) == (0, 1, 1)


def test_a_segment_that_was_cut_since_says_nothing() -> None:
    log = certified_log()
    log.log.truncate_to(Offset(3))

    report = verified(log.fs)

    assert report.is_sound, texts(report)
    assert (report.recomputed, report.shortened) == (0, 1)


def test_a_torn_end_is_told_and_is_no_damage_after_the_next_start() -> None:
    log = certified_log()
    log.fs.open(FIRST).append([b"torn"])
    assert texts(verified(log.fs)).startswith("the last 4 bytes are not an entry")

    ledger_on(log.fs).open()

    assert verified(log.fs).is_sound


def test_damage_stays_visible_after_the_next_start() -> None:
    log = certified_log()
    change_byte(log.fs, FIRST, 5)

    for _ in range(2):
        ledger_on(log.fs).open()
        assert "the first entry is damaged" in texts(verified(log.fs))


def test_a_file_that_was_removed_is_missed() -> None:
    log = superseded_log()
    label(log.fs)
    ledger = ledger_on(log.fs, bytes_max=16)
    clean_certified(log, ledger)
    ledger.open()
    assert len(log.fs.list("data/cleaning-ledger")) == 1, (
        "the others were removed, and entries say so"
    )
    report = verified(log.fs)
    assert report.is_sound, texts(report)
    assert (report.first, report.older, report.segments) == (4, 1, 1)

    log = certified_log()
    first = entries_of(log.fs)[-1].head
    line, _ = encode_entry(first, 1, "begin", {"public_key": "", "directory": OWNER.directory_id})
    log.fs.write_bytes("data/cleaning-ledger/00000000000000000003.ledger", line)
    assert verified(log.fs).is_sound
    log.fs.unlink(FIRST)
    assert "the entries before 3 are missing" in texts(verified(log.fs))


def test_the_ledger_of_another_directory_is_noticed() -> None:
    log = certified_log()
    data = log.fs.read_bytes("data/meta.properties")
    log.fs.write_bytes("data/meta.properties", data.replace(b"=directory", b"=other"))

    assert "it is the ledger of another log directory" in texts(verified(log.fs))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_change_of_any_byte_of_ledger_or_segment_is_noticed(data: st.DataObject) -> None:
    log = certified_log()
    path = data.draw(st.sampled_from([FIRST, log.log.segments[0].path(LOG)]))
    at = data.draw(st.integers(0, log.fs.size(path) - 1))

    change_byte(log.fs, path, at, data.draw(st.integers(1, 255)))

    assert not verified(log.fs).is_sound


# ---------------------------------------------------------------- anchors


def anchored(fs: MemoryFileSystem) -> SignedHead:
    key = SigningKey.load_or_create(fs, "data")
    head = signed_head(fs, "data")
    assert head is not None
    assert head.public_key == key.public_key.hex()
    return head


def signed_log() -> CompactedLog:
    """A certified log whose ledger names the key of its directory."""
    log = superseded_log()
    label(log.fs)
    clean_certified(log, signed_ledger(log))
    return log


def signed_ledger(log: CompactedLog) -> CleaningLedger:

    return ledger_on(
        log.fs,
        owner=replace(OWNER, public_key=SigningKey.load_or_create(log.fs, "data").public_key.hex()),
    )


def test_an_anchor_holds_as_the_chain_grows() -> None:
    log = signed_log()
    anchor = anchored(log.fs)
    (again,) = heads_from_json(json.dumps({"heads": [anchor.as_json()]}))
    log.append_segment((b"c", b"2"))
    clean_certified(log, signed_ledger(log), pass_id="q")

    report = verified(log.fs, [again])

    assert report.is_sound, texts(report)
    assert report.anchors == 1


def rewrite(log: CompactedLog) -> None:
    """Write a whole other chain, as a person may who can write to the disk."""
    log.fs.remove_tree("data/cleaning-ledger")
    ledger = signed_ledger(log)
    for _ in range(3):
        ledger.append("pass", {"pass": "x", "swapped": [], "not_swapped": []})


def cut_last(log: CompactedLog) -> None:
    data = log.fs.read_bytes(FIRST)
    log.fs.write_bytes(FIRST, data[: data.rstrip(b"\n").rfind(b"\n") + 1])


@pytest.mark.parametrize(
    ("happens", "said"),
    [
        pytest.param(rewrite, "the chain was rewritten", id="rewritten"),
        pytest.param(cut_last, "entries are missing", id="cut"),
    ],
)
def test_an_anchor_shows_that_the_chain_is_another(
    happens: Callable[[CompactedLog], None], said: str
) -> None:
    log = signed_log()
    anchor = anchored(log.fs)

    happens(log)

    assert said in texts(verified(log.fs, [anchor]))


def test_an_anchor_that_nobody_signed_proves_nothing() -> None:
    log = signed_log()
    anchor = anchored(log.fs).as_json()
    anchor["number"] = 1
    (forged,) = heads_from_json(json.dumps(anchor))

    assert "the signature of the anchor" in texts(verified(log.fs, [forged]))


def test_an_anchor_of_no_directory_here_is_refused() -> None:
    log = signed_log()
    anchor = anchored(log.fs)
    assert anchors_by_path(log.fs, ["data"], [anchor]) == {"data": [anchor]}

    log.fs.make_directory("elsewhere")
    with pytest.raises(ValueError, match="which is not here"):
        anchors_by_path(log.fs, ["elsewhere"], [anchor])
