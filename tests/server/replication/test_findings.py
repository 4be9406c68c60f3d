"""What an answer of the source means, for each guard of the table, with the offsets in the sentence."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset
from server.replication.divergence import Place, Remedy, common_end, remedy_for
from server.replication.findings import SourceAnswer, SourceTopic, Verdict, judge
from server.replication.resync import NEEDS_PUT_ASIDE
from server.replication.state_table import FINAL, Guard
from storage.state.leader_epochs import UNKNOWN_END, EpochEnd, LeaderEpochs

TOPIC_ID = uuid.UUID(int=7)
COMPACTED = SourceTopic(topic_id=TOPIC_ID, partitions_count=1, compacts=True, deletes=False)
DELETED = replace(COMPACTED, compacts=False, deletes=True)
PLACE = Place(
    end=Offset(100),
    epochs=((Epoch(1), Offset(0)), (Epoch(3), Offset(50))),
    cut_offset_min=Offset(0),
)
FINE = SourceAnswer(start=Offset(0), high_watermark=Offset(120))


def judged(answer: SourceAnswer, place: Place = PLACE, **settings: object) -> Verdict:
    given_ = {"topic": COMPACTED, "mirrored_id": TOPIC_ID, "sparse_level": 1} | settings
    return judge(answer, place, **given_)  # type: ignore[arg-type]


def out_of_range(start: int, end: int) -> SourceAnswer:
    code = ErrorCode.OFFSET_OUT_OF_RANGE
    return SourceAnswer(error_code=code, start=Offset(start), high_watermark=Offset(end))


def diverging(epoch: int, end: int, high_watermark: int = 200) -> SourceAnswer:
    return replace(
        FINE, diverging=(Epoch(epoch), Offset(end)), high_watermark=Offset(high_watermark)
    )


@pytest.mark.parametrize(
    ("answer", "settings", "guard", "words"),
    [
        (FINE, {}, Guard.FITS, ""),
        (FINE, {"mirrored_id": uuid.UUID(int=8)}, Guard.OTHER_TOPIC, "created again"),
        (
            SourceAnswer(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            {},
            Guard.ERROR,
            "TOPIC_AUTHORIZATION_FAILED",
        ),
        (SourceAnswer(error="no broker answers"), {}, Guard.ERROR, "no broker answers"),
        (SourceAnswer(error_code=31_000), {}, Guard.ERROR, "UNKNOWN_SERVER_ERROR"),
        (FINE, {"sparse_level": 0}, Guard.TOO_OLD, "kompakt features upgrade sparse.log=1"),
        (
            replace(FINE, first_gap=Offset(104)),
            {"sparse_level": 0, "topic": DELETED},
            Guard.TOO_OLD,
            "first gap at offset 104",
        ),
        (FINE, {"sparse_level": 0, "topic": DELETED}, Guard.FITS, ""),
        (diverging(3, 80), {}, Guard.DIVERGES, "diverge at offset 80"),
        (diverging(3, 80, high_watermark=80), {}, Guard.SOURCE_LOST, "ends at 80, this one at 100"),
        (out_of_range(0, 70), {}, Guard.SOURCE_LOST, "ends at 70, this one at 100"),
        (out_of_range(150, 200), {}, Guard.RECORDS_GONE, "starts at 150"),
        (out_of_range(150, 200), {"topic": DELETED}, Guard.STARTS_LATER, "from 100 on are gone"),
        (
            out_of_range(150, 200),
            {"topic": DELETED, "may_have_own": True},
            Guard.RECORDS_GONE,
            "from 100 on are gone, and this log may have some that the source never had",
        ),
        (out_of_range(100, 100), {}, Guard.FITS, ""),
        (
            out_of_range(100, 100),
            {"may_have_own": True},
            Guard.RECORDS_GONE,
            "starts at 100, and all records before are gone, and this log may have some",
        ),
        (out_of_range(100, 120), {}, Guard.SOURCE_LOST, "knows no epoch 3"),
        (out_of_range(100, 120), {"may_have_own": True}, Guard.RECORDS_GONE, "starts at 100"),
        (out_of_range(0, 120), {}, Guard.SOURCE_LOST, "knows no epoch 3"),
        (out_of_range(0, 120), {"may_have_own": True}, Guard.SOURCE_LOST, "knows no epoch 3"),
        (FINE, {"may_have_own": True}, Guard.FITS, ""),
        (replace(FINE, start=Offset(99)), {"may_have_own": True}, Guard.FITS, ""),
        (replace(FINE, start=Offset(100)), {}, Guard.FITS, ""),
        (replace(FINE, start=Offset(100)), {"may_have_own": True}, Guard.RECORDS_GONE, "at 100"),
        (FINE, {"missed_tombstones": "too late"}, Guard.MISSED_TOMBSTONES, "too late"),
    ],
)
def test_the_guard_and_its_sentence(
    answer: SourceAnswer, settings: dict[str, object], guard: Guard, words: str
) -> None:
    verdict = judged(answer, PLACE, **settings)
    assert verdict.guard is guard
    assert words in verdict.reason
    assert bool(verdict.reason) == (guard is not Guard.FITS)


def test_a_cut_below_what_was_cleaned_would_lose_keys() -> None:
    cleaned = replace(PLACE, cut_offset_min=Offset(90))
    assert judged(diverging(3, 80), cleaned).guard is Guard.DIVERGES_IN_CLEAN
    assert judged(diverging(3, 90), cleaned).offset == 90


@pytest.mark.parametrize(
    ("found", "remedy", "offset"),
    [
        (None, Remedy.NOTHING, 100),
        ((Epoch(3), Offset(100)), Remedy.NOTHING, 100),
        ((Epoch(3), Offset(120)), Remedy.NOTHING, 100),
        ((Epoch(3), Offset(95)), Remedy.CUT, 95),
        ((Epoch(3), Offset(90)), Remedy.CUT, 90),
        ((Epoch(3), Offset(89)), Remedy.RESYNC, 89),
        ((Epoch(2), Offset(95)), Remedy.RESYNC, 50),
        (UNKNOWN_END, Remedy.RESYNC, 0),
    ],
)
def test_the_remedy_of_a_log_that_is_cleaned_up_to_90(
    found: EpochEnd | None, remedy: Remedy, offset: int
) -> None:
    assert remedy_for(found, replace(PLACE, cut_offset_min=Offset(90))) == (remedy, offset)


def test_a_skip_goes_to_the_sources_start() -> None:
    assert judged(out_of_range(150, 200), topic=DELETED).offset == 150


@pytest.mark.parametrize(
    ("epoch", "end", "expected"),
    [
        (3, 80, 80),  # The source's epoch 3 is shorter.
        (2, 70, 50),  # Epoch 2 exists only there: ours ends where our epoch 3 begins.
        (1, 30, 30),
        (-1, -1, 0),  # Nothing in common.
    ],
)
def test_where_two_logs_may_still_be_equal(epoch: int, end: int, expected: int) -> None:
    assert common_end(PLACE, Epoch(epoch), Offset(end)) == expected


Histories = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), max_size=8)
"""Growing epochs as (step from the epoch before, records in it)."""


def log_of(history: list[tuple[int, int]], first_epoch: int = 0) -> list[int]:
    """Returns the epoch of each record."""
    epochs, epoch = [], first_epoch
    for step, count in history:
        epoch += step
        epochs += [epoch] * count
    return epochs


def epochs_of(log: list[int]) -> list[tuple[Epoch, Offset]]:
    return [
        (Epoch(epoch), Offset(at))
        for at, epoch in enumerate(log)
        if at == 0 or log[at - 1] != epoch
    ]


@given(common=Histories, ours=Histories, theirs=Histories)
def test_repeated_cuts_end_where_the_logs_diverge_and_never_below(
    common: list[tuple[int, int]], ours: list[tuple[int, int]], theirs: list[tuple[int, int]]
) -> None:
    """Both logs continue a common one; no epoch was led by two brokers, as in a Kafka cluster."""
    shared = log_of(common)
    last = shared[-1] if shared else 0
    source = shared + log_of([(2 * step, count) for step, count in theirs], last)
    mirror = shared + log_of([(2 * step + 1, count) for step, count in ours], last)
    clash = set(source[len(shared) :]) & set(mirror[len(shared) :])
    mirror = [each for each in mirror[len(shared) :] if each not in clash]
    mirror = shared + mirror
    leading = LeaderEpochs(epochs_of(source))
    for _ in range(20):
        if not mirror:
            break
        found = leading.divergence(Epoch(mirror[-1]), Offset(len(mirror)), Offset(len(source)))
        if found is None:
            break
        place = Place(
            end=Offset(len(mirror)), epochs=tuple(epochs_of(mirror)), cut_offset_min=Offset(0)
        )
        if found == UNKNOWN_END:
            # The source answers OFFSET_OUT_OF_RANGE, and the mirror keeps what it has.
            verdict = judged(out_of_range(0, len(source)), place)
            assert verdict.guard is Guard.SOURCE_LOST or not source
            return
        cut = common_end(place, *found)
        assert cut <= len(mirror)
        mirror = mirror[:cut]
    assert mirror == source[: len(mirror)]
    assert len(mirror) >= len(shared)


def test_every_final_guard_tells_an_operator_what_to_do() -> None:
    sentences = {
        Guard.SOURCE_LOST: judged(out_of_range(0, 70)).reason,
        Guard.DIVERGES_IN_CLEAN: judged(
            diverging(3, 80), replace(PLACE, cut_offset_min=Offset(90))
        ).reason,
        Guard.RECORDS_GONE: judged(out_of_range(150, 200)).reason,
        Guard.OTHER_TOPIC: judged(FINE, mirrored_id=uuid.UUID(int=8)).reason,
    }
    for guard, sentence in sentences.items():
        assert guard in FINAL
        assert "promote" in sentence, sentence
        assert ("kompakt replica resync" in sentence) == (guard is not Guard.OTHER_TOPIC)
        assert ("--put-aside" in sentence) == (guard in NEEDS_PUT_ASIDE), sentence


def test_a_new_copy_skips_to_where_the_source_starts_under_any_policy() -> None:
    for topic in (COMPACTED, DELETED):
        assert judged(out_of_range(150, 200), topic=topic).offset == 150
