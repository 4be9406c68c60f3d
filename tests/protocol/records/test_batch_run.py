"""The compiled check of a run says what a plain loop over the same batches says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocol.records.batch_run import RunScan, scan_run
from protocol.records.batch_scan import StopReason, scan_batches
from protocol.wire.numbers import Epoch, Offset
from tests.protocol.records.test_batch_tally import batch

LONG_MAX = (1 << 63) - 1
EPOCH_MAX = 1 << 30
Found = tuple[int, int, int, int, int, int, StopReason]
"""The fields of a `RunScan`."""


def fields_of(scan: RunScan) -> Found:
    return (
        scan.start_position,
        scan.end_position,
        scan.base_offset,
        scan.end_offset,
        scan.last_epoch,
        scan.first_gap,
        scan.stop,
    )


def plain(records: bytes, *, end: int, epoch: int, size_max: int, batches_max: int) -> Found:
    """Check the batches one after the other."""
    start = position = taken = 0
    base, gap = end, -1
    while position < len(records):
        one = scan_batches(records, position)
        is_whole = bool(one.batches)
        if not is_whole:
            return start, position, base, end, epoch, gap, one.stop
        each = one.batches[0]
        if each.last_offset < end and start == position:
            start = position = position + each.size_bytes
            continue
        if each.base_offset < end or each.last_offset == LONG_MAX:
            return start, position, base, end, epoch, gap, StopReason.OUT_OF_ORDER
        if not epoch <= each.leader_epoch <= EPOCH_MAX:
            return start, position, base, end, epoch, gap, StopReason.OUT_OF_ORDER
        is_full = position + each.size_bytes - start > size_max or taken == batches_max
        if position > start and is_full:
            return start, position, base, end, epoch, gap, StopReason.FULL
        if position == start:
            base = each.base_offset
        if gap < 0 and (each.base_offset > end or each.record_count <= each.last_offset - end):
            gap = end
        position += each.size_bytes
        taken += 1
        end, epoch = each.last_offset + 1, each.leader_epoch
    return start, position, base, end, epoch, gap, StopReason.END


STEPS = st.lists(
    st.fixed_dictionaries(
        {
            "gap": st.sampled_from([0, 0, 0, 1, 7, -1, LONG_MAX]),
            "offsets": st.integers(1, 4),
            "missing": st.sampled_from([0, 0, 1, 4]),
            "epoch": st.sampled_from([0, 0, 0, 1, -1, EPOCH_MAX, EPOCH_MAX + 1]),
            "payload": st.binary(max_size=20),
        }
    ),
    max_size=8,
)


@given(
    steps=STEPS,
    end=st.integers(0, 6),
    last_epoch=st.integers(-1, 2),
    size_max=st.sampled_from([0, 100, 200, 1 << 20]),
    batches_max=st.sampled_from([1, 2, 3, 1000]),
    cut=st.integers(0, 90),
)
def test_run_is_what_a_plain_loop_finds(
    steps: list[dict[str, int]],
    end: int,
    last_epoch: int,
    size_max: int,
    batches_max: int,
    cut: int,
) -> None:
    data, offset, epoch = b"", 0, 0
    for step in steps:
        offset = min(max(0, offset + step["gap"]), LONG_MAX)
        epoch += step["epoch"]
        data += batch(
            offset,
            offsets=step["offsets"],
            record_count=max(0, step["offsets"] - step["missing"]),
            leader_epoch=min(max(epoch, -1), (1 << 31) - 1),
            payload=bytes(step["payload"]),
        )
        offset = min(offset + step["offsets"], LONG_MAX)
    data = data[: len(data) - cut] if cut < len(data) else data

    scan = scan_run(
        data,
        end_offset=Offset(end),
        last_epoch=Epoch(last_epoch),
        size_max=size_max,
        batches_max=batches_max,
    )

    assert fields_of(scan) == plain(
        data, end=end, epoch=last_epoch, size_max=size_max, batches_max=batches_max
    )


def test_damaged_batch_ends_the_run_even_if_it_seems_to_be_in_the_log() -> None:
    damaged = bytearray(batch(1))
    damaged[-1] ^= 1
    for end in (0, 2):
        scan = scan_run(
            batch(0) + bytes(damaged),
            end_offset=Offset(end),
            last_epoch=Epoch(0),
            size_max=999,
            batches_max=9,
        )
        assert scan.stop is StopReason.BAD_CRC
