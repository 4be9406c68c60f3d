"""Keys of any length count with all their bytes, up to a mebibyte."""

from __future__ import annotations

import pytest

from cleaner.inspect.key_search import find_key
from protocol.records.record_batch import Codec
from tests.harness.compacted_log import CompactedLog, meter_of
from tests.harness.table_digest import digest_of

SIZES = [1, 255, 256, 65_535, 65_536, 1 << 20]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("size", SIZES)
def test_of_keys_that_differ_only_in_their_last_byte_each_keeps_its_last_value(
    size: int, codec: Codec
) -> None:
    log = CompactedLog()
    keys = [b"k" * (size - 1) + end for end in (b"a", b"b")]
    for value in (b"1", b"2"):
        for key in keys:
            log.append((key, value), codec=codec)
    log.append((keys[0], None), codec=codec)
    log.append((b"other", b"1"), codec=codec)
    log.roll()
    before = digest_of(log)

    log.clean()

    assert log.pairs() == [(3, keys[1], b"2"), (4, keys[0], None), (5, b"other", b"1")]
    assert (digest_of(log).digest, digest_of(log).keys) == (before.digest, 2)
    log.now_ms += log.log.config.delete_retention_ms
    log.clean()
    assert log.pairs() == [(3, keys[1], b"2"), (5, b"other", b"1")]


@pytest.mark.parametrize("size", SIZES)
def test_a_long_key_is_found_by_all_its_bytes(size: int) -> None:
    log = CompactedLog()
    keys = [b"k" * (size - 1) + end for end in (b"a", b"b")]
    for key in keys:
        log.append((key, b"1"))
    log.clean()
    view = log.log.cleaning_view(as_if_rolled=True)

    for offset, key in enumerate(keys):
        meter = meter_of(log.log, view.generation)
        found = find_key(view, key, log.settings, meter=meter, now_ms=log.now_ms)
        assert [each.hit.offset for each in found.records] == [offset]
