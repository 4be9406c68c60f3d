"""The compiled proof by keys, and that it says what its rule says."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from cleaner.kernel.key_proof import KeyProof
from cleaner.keys.proof import KeyAt, unproven
from cleaner.rules.record_verdict import AbortedTransaction
from cleaner.rules.step import KeysDiffer
from protocol.records.record_batch import Codec
from protocol.wire.errors import CorruptBatch
from tests.harness.examples import IS_SOAK
from tests.harness.log_builder import KeyValue, batch_of

PLENTY = 1 << 20
LIMIT = 1 << 20


def proof_of(memory_bytes: int = PLENTY, aborted: Sequence[AbortedTransaction] = ()) -> KeyProof:
    return KeyProof(
        bytes(16), memory_bytes=memory_bytes, decompressed_bytes_max=LIMIT, aborted=aborted
    )


def bits(*numbers: int, size: int = 8) -> bytearray:
    marks = bytearray(size)
    for number in numbers:
        marks[number >> 3] |= 1 << (number & 7)
    return marks


def prove(
    proof: KeyProof, chunk: bytes, marks: bytearray, winners: bytearray | None = None
) -> None:
    proof.begin_marked(marks)
    assert proof.feed_marked(chunk).consumed_bytes == len(chunk)
    proof.begin_winners(start_offset=0, end_offset=1 << 40, winners=winners)
    assert proof.feed_winners(chunk).consumed_bytes == len(chunk)


def batch(*keys: bytes | None, offset: int = 0, **named: object) -> bytes:
    pairs: list[KeyValue] = [(key, b"value") for key in keys]
    return bytes(batch_of(pairs, base_offset=offset, **named))  # type: ignore[arg-type]


def test_a_marked_record_needs_a_later_record_of_the_same_bytes() -> None:
    proof = proof_of()

    prove(proof, batch(b"a", b"b", b"a"), bits(0, 1))

    assert proof.unproven == (1, 1)
    assert len(proof) == 2


def test_an_earlier_record_of_the_key_and_the_record_itself_prove_nothing() -> None:
    proof = proof_of()

    prove(proof, batch(b"a", b"a", b"b"), bits(1))

    assert proof.unproven == (1, 1)


def test_records_without_a_key_have_no_bit() -> None:
    proof = proof_of()

    prove(proof, batch(None, b"a", None, b"b", b"a"), bits(0))

    assert proof.unproven == (0, -1)
    assert len(proof) == 1


def test_where_winners_are_known_one_at_a_lower_offset_counts_and_others_do_not() -> None:
    chunk = batch(b"a", b"a", b"b", b"b")
    proof = proof_of()

    prove(proof, chunk, bits(1, 2), winners=bits(0))

    assert proof.unproven == (1, 2)


@pytest.mark.parametrize(("marker", "keys"), [(5, 0), (1, 0), (2, 1), (9, 1)])
def test_the_records_of_an_aborted_transaction_win_nothing(marker: int, keys: int) -> None:
    aborted = [AbortedTransaction(producer_id=7, first_offset=1, marker_offset=marker)]
    own = {"producer_id": 7 if keys else 8, "producer_epoch": 0, "base_sequence": 0}
    chunk = batch(b"a") + batch(b"a", offset=1, is_transactional=True, **own)
    proof = proof_of(aborted=aborted)

    prove(proof, chunk, bits(0))

    assert proof.unproven.keys == keys


def test_only_records_of_the_section_win() -> None:
    chunk = batch(b"a", b"a", b"b", b"b", b"b")
    for start, end, keys in ((0, 5, 0), (2, 5, 1), (0, 3, 1), (0, 4, 0)):
        proof = proof_of()
        proof.begin_marked(bits(0, 2))
        proof.feed_marked(chunk)
        proof.begin_winners(start_offset=start, end_offset=end)
        proof.feed_winners(chunk)
        assert proof.unproven.keys == keys, (start, end)


def test_feeding_stops_after_the_batch_that_fills_the_memory() -> None:
    batches = [batch(*(b"%d-%d" % (n, k) for k in range(100)), offset=100 * n) for n in range(20)]
    proof = proof_of(memory_bytes=64 << 10)
    proof.begin_marked(bytearray(b"\xff" * 300))
    chunk, fed, fillings = b"".join(batches), 0, 0
    while fed < len(chunk):
        fed += proof.feed_marked(chunk[fed:]).consumed_bytes
        if proof.is_full:
            fillings += 1
            proof.begin_winners(start_offset=0, end_offset=1 << 40)
            proof.feed_winners(chunk)
            assert proof.unproven.keys == len(proof) < 2000
            proof.clear()

    assert fillings >= 1
    assert proof.marked_records == 2000


def test_a_batch_with_more_keys_than_fit_is_remembered_whole() -> None:
    proof = proof_of(memory_bytes=1)
    keys = [b"%d" % number for number in range(5000)]

    prove(proof, batch(*keys, *keys), bytearray(b"\xff" * 625 + bytes(625)))

    assert proof.is_full
    assert len(proof) == 5000
    assert proof.unproven == (0, -1)


def test_a_segment_with_more_records_than_bits_is_refused() -> None:
    proof = proof_of()
    proof.begin_marked(bytearray(1))

    with pytest.raises(KeysDiffer, match="more records than marks"):
        proof.feed_marked(batch(*(b"%d" % number for number in range(9))))


def test_a_damaged_batch_is_refused() -> None:
    chunk = bytearray(batch(b"a"))
    chunk[-1] ^= 1
    proof = proof_of()
    proof.begin_marked(bits())

    with pytest.raises(CorruptBatch, match="position 50: its CRC"):
        proof.feed_marked(chunk, position=50)


@pytest.mark.parametrize("seed", range(1000 if IS_SOAK else 20))
def test_any_records_are_proved_as_the_rule_says(seed: int) -> None:
    random = Random(seed)
    count = random.choice([1, 5, 3000])
    keys = [random.randbytes(random.choice([0, 1, 3, 16, 300])) for _ in range(count)]
    chunk, records, offset = b"", [], 0
    while offset < 4000 and random.random() < 0.99:
        some = random.choices(
            [None, *keys[:3], *random.choices(keys, k=20)], k=random.randint(1, 200)
        )
        chunk += batch(*some, offset=offset, codec=random.choice([Codec.NONE, Codec.ZSTD]))
        records += [KeyAt(key, offset + n) for n, key in enumerate(some) if key is not None]
        offset += len(some)
    marks = bytearray(random.randbytes(len(records) // 8 + 1))
    proof = proof_of()

    prove(proof, chunk, marks)

    marked = [each for n, each in enumerate(records) if marks[n >> 3] >> (n & 7) & 1]
    assert proof.unproven == unproven(marked, records)
    assert len(proof) == len({each.key for each in marked})
