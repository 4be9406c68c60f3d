"""The codec and the level of the batches that a pass rebuilds."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest

from protocol.records import compression
from protocol.records.record_batch import Codec
from storage.formats.log_config import LogConfig
from tests.harness.compacted_log import CONFIG, CompactedLog

NAMES = {
    Codec.NONE: "uncompressed",
    Codec.GZIP: "gzip",
    Codec.SNAPPY: "snappy",
    Codec.LZ4: "lz4",
    Codec.ZSTD: "zstd",
}


def cleaned(config: LogConfig, codec: Codec) -> CompactedLog:
    """Returns a cleaned log: of its first batch one record is left, its second has not changed."""
    log = CompactedLog(config)
    log.append((b"a", b"1" * 1000), (b"b", b"1" * 1000), codec=codec)
    log.append((b"c", b"1" * 1000), (b"a", b"2" * 1000), codec=codec)
    log.clean()
    assert [offset for offset, _, _ in log.pairs()] == [1, 2, 3]
    return log


@pytest.mark.parametrize("wanted", NAMES)
@pytest.mark.parametrize("codec", NAMES)
def test_rebuilt_batches_get_the_codec_of_the_topic_and_others_keep_theirs(
    codec: Codec, wanted: Codec
) -> None:
    config = replace(CONFIG, compaction_compression_type=NAMES[wanted])

    log = cleaned(config, codec)

    assert [Codec(header.attributes & 7) for header in log.headers()] == [wanted, codec]


@pytest.mark.parametrize("codec", NAMES)
def test_by_default_each_batch_keeps_its_codec(codec: Codec) -> None:
    assert [Codec(header.attributes & 7) for header in cleaned(CONFIG, codec).headers()] == [
        codec,
        codec,
    ]


@pytest.mark.parametrize(
    ("codec", "config", "level"),
    [
        (Codec.GZIP, replace(CONFIG, compression_gzip_level=9), 9),
        (Codec.GZIP, CONFIG, None),
        (Codec.LZ4, replace(CONFIG, compression_lz4_level=12), 12),
        (Codec.ZSTD, replace(CONFIG, compression_zstd_level=19), 19),
        (
            Codec.NONE,
            replace(CONFIG, compaction_compression_type="zstd", compression_zstd_level=7),
            7,
        ),
    ],
)
def test_rebuilt_batches_have_the_level_of_the_topic(
    codec: Codec, config: LogConfig, level: int | None
) -> None:
    levels = list[int | None]()
    number = Codec.ZSTD if config.compaction_compression_type == "zstd" else codec
    compress = compression._COMPRESS[number]

    def noted(data: compression.Buffer, level: int | None) -> compression.Buffer:
        levels.append(level)
        return compress(data, level)

    log = CompactedLog(config)
    log.append((b"a", b"1"), (b"b", b"1"), codec=codec)
    log.append((b"a", b"2"), codec=codec)
    with patch.dict(compression._COMPRESS, {number: noted}):
        log.clean()

    assert levels == [level]
