from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.records.batch_header import HEADER_BYTES, TimestampType, read_header
from protocol.records.batch_scan import crc32c
from protocol.records.compression import compress
from protocol.records.record_batch import Codec, Record, build_batch
from protocol.records.record_walk import UNFIT_MAX
from protocol.wire.error_codes import ErrorCode
from storage.batches.validate import (
    AT_ONCE_BYTES_MAX,
    AT_ONCE_INFLATED_BYTES_MAX,
    AT_ONCE_PACKED_BYTES_MAX,
    DECOMPRESSED_BYTES_MAX,
    RecordError,
    Refused,
    ValidationRules,
    ValidBatch,
    validate_at_once,
    validate_batch,
)
from storage.formats.log_config import LogConfig
from storage.formats.topic_partition import TopicPartition
from tests.harness.examples import examples
from tests.harness.log_builder import batch_of, records_in
from tests.harness.malformed_batches import MALFORMED, Malformed, good, plain_records, raw_batch

NOW_MS = 1_000_000


def rules_of(config: LogConfig | None = None, **settings: Any) -> ValidationRules:
    """Returns the rules of a topic with these settings."""
    config = replace(config if config is not None else PLAIN, **settings)
    return ValidationRules(TopicPartition("orders", 3), config, NOW_MS)


PLAIN = LogConfig(max_message_bytes=10_000)
RULES = rules_of()
COMPACTED = rules_of(cleanup_policy=("compact",))
CODECS = st.sampled_from(list(Codec))
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
NAMES = {codec: codec.name.lower() for codec in Codec} | {Codec.NONE: "uncompressed"}


def refusal(batch: bytearray, rules: ValidationRules = RULES) -> Refused:
    before = bytes(batch)
    answer = validate_batch(memoryview(batch), rules)
    assert isinstance(answer, Refused)
    assert bytes(batch) == before
    return answer


def with_field(batch: bytearray, form: str, position: int, value: int) -> bytearray:
    """Returns the batch with a changed header field and the right CRC."""
    struct.pack_into(form, batch, position, value)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


@given(CODECS, st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9)), min_size=1))
def test_batch_of_any_codec_is_taken_as_it_is(
    codec: Codec, pairs: list[tuple[bytes | None, bytes | None]]
) -> None:
    batch = batch_of(pairs, codec=codec)
    before = bytes(batch)
    for rules in (RULES, COMPACTED):
        answer = validate_batch(memoryview(batch), rules)
        assert isinstance(answer, ValidBatch)
        assert bytes(answer.view) == before


def test_batch_larger_than_max_message_bytes_is_too_large() -> None:
    batch = batch_of([(b"k", b"v" * 200)])
    assert isinstance(
        validate_batch(memoryview(batch), rules_of(max_message_bytes=len(batch))), ValidBatch
    )
    answer = refusal(batch, rules_of(max_message_bytes=len(batch) - 1))
    assert answer.error_code is ErrorCode.MESSAGE_TOO_LARGE


def test_flipped_bit_anywhere_behind_the_crc_is_corrupt() -> None:
    batch = batch_of([(b"k", b"v")])
    for position in range(17, len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 4
        assert refusal(damaged).error_code is ErrorCode.CORRUPT_MESSAGE


def test_every_cut_of_a_batch_is_corrupt() -> None:
    batch = batch_of([(b"k", b"v")])
    for size in range(len(batch)):
        answer = refusal(batch[:size])
        assert answer.error_code is ErrorCode.CORRUPT_MESSAGE
        assert answer.record_count == (1 if size >= HEADER_BYTES else 0)
        assert validate_at_once(memoryview(batch[:size]), RULES) == answer
        recompressed = rules_of(compression_type="zstd")
        assert validate_at_once(memoryview(batch[:size]), recompressed) in (answer, None)


def test_a_header_that_announces_more_under_a_right_crc_was_built_wrong() -> None:
    """A client would send it again after CORRUPT_MESSAGE."""
    header = with_field(batch_of([(b"k", b"v")])[:HEADER_BYTES], ">i", 8, 1000)
    assert refusal(header).error_code is ErrorCode.INVALID_RECORD


def test_two_batches_in_one_request_are_refused() -> None:
    answer = refusal(batch_of([(b"a", b"1")]) + batch_of([(b"b", b"2")]))
    assert answer.error_code is ErrorCode.INVALID_RECORD
    assert "exactly one" in answer.message


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_other_message_formats_are_refused(magic: int) -> None:
    batch = batch_of([(b"k", b"v")])
    batch[16] = magic
    assert refusal(batch).error_code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("form", "position", "value", "code"),
    [
        pytest.param(">h", 21, 0x20, ErrorCode.INVALID_RECORD, id="control_bit"),
        pytest.param(">h", 21, 0x10, ErrorCode.INVALID_RECORD, id="transaction_of_nobody"),
        pytest.param(">h", 21, 0x40, ErrorCode.INVALID_RECORD, id="delete_horizon"),
        pytest.param(">h", 21, 0x08, ErrorCode.INVALID_TIMESTAMP, id="timestamp_type"),
        pytest.param(">h", 21, 5, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, id="unknown_codec"),
        pytest.param(">i", 57, 0, ErrorCode.INVALID_RECORD, id="no_records"),
        pytest.param(">i", 23, 5, ErrorCode.INVALID_RECORD, id="offsets_beyond_the_count"),
    ],
)
def test_unsound_header_with_a_right_crc_is_refused(
    form: str, position: int, value: int, code: ErrorCode
) -> None:
    batch = with_field(batch_of([(b"a", b"1"), (b"b", b"2")]), form, position, value)
    for rules in (RULES, COMPACTED):
        assert refusal(bytearray(batch), rules).error_code is code


def test_more_records_than_offsets_are_refused() -> None:
    batch = with_field(batch_of([(b"a", b"1"), (b"b", b"2")]), ">i", 57, 3)
    assert refusal(batch).error_code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("producer_id", "epoch", "sequence", "is_taken"),
    [
        pytest.param(0, 0, 0, True, id="the_first_of_everything"),
        pytest.param(0, -1, 0, False, id="no_epoch"),
        pytest.param(0, 0, -1, False, id="no_sequence"),
        pytest.param(1, -1, -1, False, id="neither"),
        pytest.param(-1, -1, -1, True, id="no_producer"),
    ],
)
def test_a_producer_has_an_epoch_and_a_sequence(
    producer_id: int, epoch: int, sequence: int, is_taken: bool
) -> None:
    record = Record(offset=0, timestamp=NOW_MS, key=b"k", value=b"v")
    batch = build_batch(
        [record], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )

    assert isinstance(validate_batch(memoryview(batch), RULES), ValidBatch) is is_taken


@pytest.mark.parametrize("producer_id", [0, 5])
def test_every_producer_with_an_id_may_write_transactions(producer_id: int) -> None:
    answer = validate_batch(memoryview(transactional([(b"k", b"v")], producer_id)), RULES)

    assert isinstance(answer, ValidBatch)
    assert (answer.log_append_time_ms, answer.marker) == (-1, None)


def transactional(
    pairs: Sequence[tuple[bytes | None, bytes | None]],
    producer_id: int = 5,
    codec: Codec = Codec.NONE,
) -> bytearray:
    return batch_of(
        pairs,
        timestamps=[NOW_MS] * len(pairs),
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def test_a_base_offset_that_a_client_has_set_is_no_fault() -> None:
    records = [Record(offset=n, timestamp=NOW_MS, key=b"k", value=b"v") for n in (7, 8)]

    assert isinstance(
        validate_batch(memoryview(build_batch(records, base_offset=7)), RULES), ValidBatch
    )


@pytest.mark.parametrize(("keyless", "is_counted"), [(1, False), (2, True)])
def test_a_refusal_counts_the_records_from_the_second_on(keyless: int, is_counted: bool) -> None:
    pairs: list[tuple[bytes | None, bytes | None]] = [(None, b"v")] * keyless + [(b"k", b"v")]

    message = refusal(batch_of(pairs), COMPACTED).message

    assert (f"{keyless} of {keyless + 1} records are refused" in message) is is_counted


@pytest.mark.parametrize(
    ("timestamp", "is_taken"),
    [(NOW_MS + 3_600_000, True), (NOW_MS + 3_600_001, False), (0, True), (-1, True), (-2, False)],
)
def test_timestamps_beyond_the_bounds_are_refused(timestamp: int, is_taken: bool) -> None:
    batch = batch_of([(b"k", b"v")], timestamps=[timestamp])
    rules = rules_of(message_timestamp_before_max_ms=NOW_MS)
    if is_taken:
        assert isinstance(validate_batch(memoryview(batch), rules), ValidBatch)
    else:
        assert refusal(batch, rules).error_code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("timestamps", [[NOW_MS, NOW_MS + 3_600_001], [NOW_MS + 3_600_001, 0]])
def test_default_bounds_refuse_a_header_from_the_future(timestamps: list[int]) -> None:
    batch = batch_of([(b"a", b"1"), (b"b", b"2")], timestamps=timestamps)
    assert refusal(batch).error_code is ErrorCode.INVALID_TIMESTAMP
    with_field(batch, ">q", 35, NOW_MS)
    if timestamps[0] > NOW_MS:
        assert refusal(batch).error_code is ErrorCode.INVALID_TIMESTAMP


def test_old_first_record_is_refused_even_beside_a_young_one() -> None:
    batch = batch_of([(b"a", b"1"), (b"b", b"2")], timestamps=[5, NOW_MS])
    answer = refusal(batch, rules_of(message_timestamp_before_max_ms=1000))
    assert answer.error_code is ErrorCode.INVALID_TIMESTAMP


NARROW = rules_of(message_timestamp_before_max_ms=1000)


@given(CODECS)
def test_a_record_beyond_a_narrow_bound_is_refused_wherever_it_stands(codec: Codec) -> None:
    """The header has only the first and the largest timestamp."""
    pairs: list[tuple[bytes | None, bytes | None]] = [(None, b"1"), (None, b"2"), (None, b"3")]
    batch = batch_of(pairs, timestamps=[NOW_MS, NOW_MS - 1001, NOW_MS], codec=codec)
    answer = refusal(batch, NARROW)
    assert answer.error_code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [1]
    on_the_bound = batch_of(pairs, timestamps=[NOW_MS, NOW_MS - 1000, -1], codec=codec)
    assert isinstance(validate_batch(memoryview(on_the_bound), NARROW), ValidBatch)


@given(CODECS)
def test_a_wrong_header_hides_no_record_from_a_narrow_bound(codec: Codec) -> None:
    future = NOW_MS + 3_600_001
    batch = batch_of([(b"a", b"1"), (b"b", b"2")], timestamps=[NOW_MS, future], codec=codec)
    with_field(batch, ">q", 35, NOW_MS)
    for rules in (NARROW, COMPACTED):
        answer = refusal(batch, rules)
        assert answer.error_code is ErrorCode.INVALID_TIMESTAMP
        assert [error.batch_index for error in answer.record_errors] == [1]


@pytest.mark.parametrize("announced", [-1, 0, NOW_MS + 5, 2**60])
def test_the_largest_timestamp_becomes_that_of_the_records(announced: int) -> None:
    """LogValidator.java sets it for every batch, and ignores the producer's value."""
    for rules in (RULES, COMPACTED):
        batch = batch_of([(b"a", b"1"), (b"b", b"2")], timestamps=[NOW_MS - 2, NOW_MS - 1])
        with_field(batch, ">q", 35, announced)
        answer = validate_batch(memoryview(batch), rules)
        assert isinstance(answer, ValidBatch)
        assert answer.header.max_timestamp == NOW_MS - 1
        assert answer.header == read_header(batch)
        assert answer.header.crc == crc32c(memoryview(batch)[21:])


@pytest.mark.parametrize("rules", [RULES, COMPACTED, NARROW], ids=["plain", "compacted", "narrow"])
@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)
@pytest.mark.parametrize("malformed", MALFORMED, ids=lambda malformed: malformed.name)
def test_every_malformed_batch_is_refused_on_every_topic(
    malformed: Malformed, codec: Codec, rules: ValidationRules
) -> None:
    """Apache Kafka 4.3.1 refuses them too, except those of KAFKA_TAKES."""
    answer = refusal(malformed.build(codec, NOW_MS), rules)
    assert answer.error_code in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
    assert answer.record_errors == ()
    assert isinstance(validate_batch(memoryview(good(codec, NOW_MS)), rules), ValidBatch)


KAFKA_TAKES = {
    ("offset_deltas_repeat", Codec.NONE),
    ("offset_deltas_fall", Codec.NONE),
    ("offset_deltas_leave_a_gap", Codec.NONE),
    ("offset_deltas_begin_at_one", Codec.NONE),
    ("offset_deltas_are_negative", Codec.NONE),
    ("bytes_behind_what_is_compressed", Codec.GZIP),
    ("bytes_behind_what_is_compressed", Codec.LZ4),
    *(("record_length_beyond_the_batch", codec) for codec in Codec if codec is not Codec.NONE),
}
"""The batches that 4.3.1 answers with NONE, on a topic with and without `compact` alike. It refuses the
rest of the matrix: a wrong CRC with CORRUPT_MESSAGE, records that do not decompress and compressed
records with wrong offsets with UNKNOWN_SERVER_ERROR, and everything else with INVALID_RECORD."""


def test_what_kafka_takes_is_in_the_matrix() -> None:
    assert {name for name, _ in KAFKA_TAKES} <= {malformed.name for malformed in MALFORMED}


@given(CODECS)
def test_all_records_that_are_unfit_are_named_as_kafka_names_them(codec: Codec) -> None:
    """The same batch with the same settings, sent to Apache Kafka 4.3.1: INVALID_TIMESTAMP, 1 to 4."""
    keys = [b"k", None, b"k", None, b"k", b"k"]
    old = NOW_MS - 2000
    times = [NOW_MS, NOW_MS, old, old, old, NOW_MS]
    batch = batch_of([(key, b"v") for key in keys], timestamps=times, codec=codec)
    answer = refusal(batch, rules_of(COMPACTED.config, message_timestamp_before_max_ms=1000))
    assert answer.error_code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [1, 2, 3, 4]
    said = ["key" if "without key" in error.message else "time" for error in answer.record_errors]
    assert said == ["key", "time", "key", "time"]
    assert answer.message.startswith(f"4 of 6 records are refused. Timestamp {old} is further")
    assert "are named" not in answer.message


@given(CODECS)
def test_ten_keyless_records_of_a_hundred_are_named_and_no_others(codec: Codec) -> None:
    """As in Apache Kafka 4.3.1 (KIP-467): INVALID_RECORD, 5, 15, ... 95."""
    bad = range(5, 100, 10)
    batch = batch_of([(None if n in bad else b"k", b"v") for n in range(100)], codec=codec)
    answer = refusal(batch, COMPACTED)
    assert answer.error_code is ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == list(bad)


@given(
    kinds=st.lists(st.sampled_from(["sound", "keyless", "untimely"]), min_size=1, max_size=12),
    codec=CODECS,
)
def test_the_message_of_unfit_records_is_about_the_error_that_decides_the_code(
    kinds: list[str], codec: Codec
) -> None:
    """Apache Kafka 4.3.1: one untimely record makes it INVALID_TIMESTAMP, even after other errors."""
    keys = [None if kind == "keyless" else b"k" for kind in kinds]
    times = [NOW_MS - 2000 * (kind == "untimely") for kind in kinds]
    batch = batch_of([(key, b"v") for key in keys], timestamps=times, codec=codec)
    rules = rules_of(COMPACTED.config, message_timestamp_before_max_ms=1000)
    if set(kinds) == {"sound"}:
        assert isinstance(validate_batch(memoryview(bytearray(batch)), rules), ValidBatch)
        return
    answer = refusal(batch, rules)
    is_untimely = "untimely" in kinds
    code = ErrorCode.INVALID_TIMESTAMP if is_untimely else ErrorCode.INVALID_RECORD
    assert answer.error_code is code
    assert ("Timestamp" in answer.message) is is_untimely
    assert ("without key" in answer.message) is not is_untimely
    assert [each.batch_index for each in answer.record_errors] == [
        number for number, kind in enumerate(kinds) if kind != "sound"
    ]


def test_a_batch_of_nothing_but_unfit_records_does_not_make_an_answer_without_a_bound() -> None:
    count = UNFIT_MAX + 200
    batch = batch_of([(None, b"v")] * count, codec=Codec.ZSTD)
    answer = refusal(batch, rules_of(COMPACTED.config, max_message_bytes=1 << 20))
    assert [error.batch_index for error in answer.record_errors] == list(range(UNFIT_MAX))
    assert f"{count} of {count} records" in answer.message
    assert answer.message.endswith(f"Only the first {UNFIT_MAX} are named.")
    all_named = refusal(batch_of([(None, b"v")] * UNFIT_MAX, codec=Codec.ZSTD), COMPACTED)
    assert len(all_named.record_errors) == UNFIT_MAX
    assert "are named" not in all_named.message


ROOMY = rules_of(max_message_bytes=1 << 30)


def inflating_to(size: int, codec: Codec) -> bytearray:
    """A batch of one record, of about this size when decompressed."""
    return batch_of([(b"k", bytes(size - 100))], codec=codec, timestamps=[NOW_MS])


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)
def test_what_is_small_is_validated_at_once_and_the_rest_is_left_as_it_was(codec: Codec) -> None:
    small = AT_ONCE_BYTES_MAX if codec is Codec.NONE else AT_ONCE_INFLATED_BYTES_MAX
    batch = memoryview(inflating_to(small, codec))
    assert validate_at_once(batch, ROOMY) == validate_batch(batch, ROOMY)
    large = inflating_to(small + 10_000, codec)
    before = bytes(large)
    assert validate_at_once(memoryview(large), ROOMY) is None
    assert bytes(large) == before
    assert isinstance(validate_batch(memoryview(large), ROOMY), ValidBatch)


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)
def test_a_large_batch_and_one_to_recompress_are_never_validated_at_once(codec: Codec) -> None:
    noise = random.Random(1).randbytes(AT_ONCE_BYTES_MAX + 1000)
    batch = memoryview(batch_of([(b"k", noise)], codec=codec, timestamps=[NOW_MS]))
    assert validate_at_once(batch, ROOMY) is None
    other = Codec.LZ4 if codec is Codec.ZSTD else Codec.ZSTD
    rules = rules_of(ROOMY.config, compression_type=NAMES[other])
    assert validate_at_once(memoryview(batch_of([(b"k", b"v")], codec=codec)), rules) is None


def test_the_bounds_of_inflated_bytes_are_those_that_the_documents_name() -> None:
    """docs/design/decisions.md, docs/design/loop.md."""
    assert (AT_ONCE_INFLATED_BYTES_MAX, DECOMPRESSED_BYTES_MAX) == (512 << 10, 128 << 20)


def test_the_largest_batch_that_topics_accept_by_default_is_validated_at_once() -> None:
    largest = LogConfig()
    size = largest.max_message_bytes
    overhead = len(transactional([(b"k", bytes(size))])) - size
    # The transactional bit is beside the codec's.
    batch = transactional([(b"k", bytes(size - overhead))])
    assert size - 4 < len(batch) <= size, "the lengths of its fields vary"
    assert isinstance(validate_at_once(memoryview(batch), rules_of(largest)), ValidBatch)


@pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.name)
def test_compressed_bytes_have_a_lower_bound_than_inflated_ones(codec: Codec) -> None:
    noise = random.Random(1).randbytes(AT_ONCE_PACKED_BYTES_MAX + 1000)
    assert validate_at_once(memoryview(transactional([(b"k", noise)], codec=codec)), ROOMY) is None
    small = memoryview(transactional([(b"k", noise[: AT_ONCE_PACKED_BYTES_MAX // 2])], codec=codec))
    assert isinstance(validate_at_once(small, ROOMY), ValidBatch)


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)
def test_a_batch_with_the_topics_codec_is_not_recompressed_for_its_other_attributes(
    codec: Codec,
) -> None:
    batch = transactional([(b"k", b"v" * 100)], codec=codec)
    before = bytes(batch)
    answer = validate_at_once(memoryview(batch), rules_of(compression_type=NAMES[codec]))
    assert isinstance(answer, ValidBatch)
    assert bytes(answer.view) == before


@pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.name)
def test_what_is_cut_into_many_parts_is_not_validated_at_once(codec: Codec) -> None:
    plain = plain_records((0, 1, 2), timestamp=NOW_MS)
    step = -(-len(plain) // 40)
    pieces = [bytes(compress(codec, plain[at : at + step])) for at in range(0, len(plain), step)]
    packed = pieces[0] + b"".join(
        piece[16:] if codec is Codec.SNAPPY else piece for piece in pieces[1:]
    )
    batch = memoryview(raw_batch(packed, codec, timestamp=NOW_MS))
    assert isinstance(validate_batch(batch, RULES), ValidBatch)
    at_once = validate_at_once(batch, RULES)
    # The zstd library reads across frames by itself, without the interpreter lock.
    assert isinstance(at_once, ValidBatch) if codec is Codec.ZSTD else at_once is None


@given(st.binary(max_size=200), st.booleans())
def test_at_once_says_what_the_whole_validation_says(data: bytes, is_compacted: bool) -> None:
    rules = COMPACTED if is_compacted else RULES
    once = validate_at_once(memoryview(bytearray(data)), rules)
    assert once == validate_batch(memoryview(bytearray(data)), rules)


@given(CODECS, CODECS, st.booleans())
def test_batches_are_stored_with_the_topics_codec(
    sent: Codec, stored: Codec, is_compacted: bool
) -> None:
    batch = batch_of([(b"a", b"1" * 300), (b"b", b"2")], codec=sent, producer_id=5,
                     producer_epoch=1, base_sequence=9)  # fmt: skip
    before = bytes(batch)
    kind = COMPACTED if is_compacted else RULES
    rules = rules_of(kind.config, compression_type=NAMES[stored])
    answer = validate_batch(memoryview(batch), rules)
    assert isinstance(answer, ValidBatch)
    assert answer.header == read_header(answer.view)
    assert answer.header.codec is stored
    assert records_in(bytes(answer.view)) == records_in(before)
    if sent is stored:
        assert bytes(answer.view) == before


def test_a_batch_that_recompression_makes_too_large_is_refused() -> None:
    """UnifiedLog.java: sizes are validated again after a recompression, which may change them."""
    batch = batch_of([(b"k", bytes(5000))], codec=Codec.GZIP)
    rules = rules_of(compression_type="uncompressed", max_message_bytes=5000)
    answer = refusal(batch, rules)
    assert answer.error_code is ErrorCode.MESSAGE_TOO_LARGE
    assert "at most 5000" in answer.message
    size = len(batch_of([(b"k", bytes(5000))]))
    fitting = rules_of(compression_type="uncompressed", max_message_bytes=size)
    assert isinstance(validate_batch(memoryview(batch), fitting), ValidBatch)


def test_a_batch_too_large_as_it_is_sent_is_refused_though_it_would_be_stored_small() -> None:
    batch = batch_of([(b"k", bytes(5000))])
    rules = rules_of(compression_type="gzip", max_message_bytes=5000)
    assert refusal(batch, rules).error_code is ErrorCode.MESSAGE_TOO_LARGE


def test_recompression_refuses_records_that_are_malformed() -> None:
    batch = with_field(batch_of([(b"a", b"1")]), ">h", 21, int(Codec.GZIP))
    rules = rules_of(compression_type="zstd")
    assert refusal(batch, rules).error_code is ErrorCode.INVALID_RECORD


@given(CODECS, CODECS)
def test_log_append_time_is_stamped_on_what_is_recompressed(sent: Codec, stored: Codec) -> None:
    batch = batch_of([(b"a", b"1"), (b"b", b"2")], timestamps=[5, 900_000_000], codec=sent)
    rules = rules_of(message_timestamp_type="LogAppendTime", compression_type=NAMES[stored])
    answer = validate_batch(memoryview(batch), rules)
    assert isinstance(answer, ValidBatch)
    assert answer.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert answer.header.crc == crc32c(answer.view[21:])
    assert [record.timestamp for record in records_in(bytes(answer.view))] == [NOW_MS, NOW_MS]


def test_log_append_time_is_stamped_with_a_right_crc() -> None:
    batch = batch_of([(b"a", b"1"), (b"b", b"2")], timestamps=[5, 900_000_000])
    rules = rules_of(message_timestamp_type="LogAppendTime")
    answer = validate_batch(memoryview(batch), rules)
    assert isinstance(answer, ValidBatch)
    assert answer.log_append_time_ms == NOW_MS
    assert answer.header == read_header(batch)
    assert answer.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert answer.header.crc == crc32c(memoryview(batch)[21:])
    assert [record.timestamp for record in records_in(bytes(batch))] == [NOW_MS, NOW_MS]


@given(CODECS)
def test_keyless_record_on_a_compacted_topic_refuses_the_batch_by_its_index(codec: Codec) -> None:
    batch = batch_of([(b"a", b"1"), (None, b"2"), (b"c", b"3")], codec=codec)
    text = "Compacted topic cannot accept message without key in topic partition orders-3."
    answer = refusal(batch, COMPACTED)
    assert answer.error_code is ErrorCode.INVALID_RECORD
    assert answer.record_errors == (RecordError(1, text),)
    assert answer.record_count == 3
    assert isinstance(validate_batch(memoryview(batch), RULES), ValidBatch)


def test_empty_key_is_a_key() -> None:
    assert isinstance(validate_batch(memoryview(batch_of([(b"", b"1")])), COMPACTED), ValidBatch)


def test_bytes_that_no_codec_made_are_refused_on_a_compacted_topic() -> None:
    batch = batch_of([(b"a", b"1")])
    with_field(batch, ">h", 21, int(Codec.GZIP))
    answer = refusal(batch, COMPACTED)
    assert answer.error_code in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_bomb_is_refused_before_it_fills_memory(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.batches.validate.DECOMPRESSED_BYTES_MAX", 1000)
    record = Record(offset=0, timestamp=1, key=b"k", value=bytes(100_000))
    answer = refusal(build_batch([record], codec=codec), COMPACTED)
    assert answer.error_code is ErrorCode.MESSAGE_TOO_LARGE


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_refused_or_taken_and_nothing_else_happens(
    data: bytes, is_compacted: bool
) -> None:
    answer = validate_batch(memoryview(bytearray(data)), COMPACTED if is_compacted else RULES)
    assert isinstance(answer, Refused | ValidBatch)


@given(st.binary(max_size=80), CODECS, CODECS)
def test_any_records_under_a_right_crc_are_refused_or_taken(
    data: bytes, codec: Codec, stored: Codec
) -> None:
    batch = batch_of([(b"a", b"1")])[:61] + data
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    with_field(batch, ">h", 21, int(codec))
    for rules in (COMPACTED, rules_of(NARROW.config, compression_type=NAMES[stored])):
        answer = validate_batch(memoryview(batch), rules)
        assert isinstance(answer, Refused | ValidBatch)


@given(CODECS, st.data())
@settings(max_examples=examples(500), deadline=None)
def test_whatever_is_taken_can_be_read_by_everybody(codec: Codec, data: st.DataObject) -> None:
    """Changes a few bytes of the records or of their compressed form, under a right CRC."""
    count = data.draw(st.integers(1, 4))
    plain = plain_records(range(count), timestamp=NOW_MS)
    for _ in range(data.draw(st.integers(0, 2))):
        plain[data.draw(st.integers(0, len(plain) - 1))] = data.draw(st.integers(0, 255))
    packed = bytearray(compress(codec, plain))
    for _ in range(data.draw(st.integers(0, 1))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    batch = raw_batch(packed, codec, count=count, timestamp=NOW_MS)
    for rules in (RULES, rules_of(RULES.config, compression_type=NAMES[data.draw(CODECS)])):
        answer = validate_batch(memoryview(bytearray(batch)), rules)
        if isinstance(answer, ValidBatch):
            records = records_in(bytes(answer.view))
            assert [record.offset for record in records] == list(range(count))
            assert answer.header.max_timestamp == max(record.timestamp for record in records)
