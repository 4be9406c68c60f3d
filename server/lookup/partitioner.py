"""The partition that a producer's partitioner chooses for a key (`view.partitioner`). Pure.

    murmur2    Java's default, also of kafka-python, aiokafka and kafkajs; librdkafka's murmur2_random
    crc32      librdkafka's defaults, consistent_random and consistent

Source: Apache Kafka, Utils.java `murmur2`, BuiltInPartitioner.java; librdkafka, rdkafka_msg.c.
"""

from __future__ import annotations

import zlib

from storage.formats.log_config import CRC32, MURMUR2

SEED = 0x9747B28C
FACTOR = 0x5BD1E995
SHIFT = 24
MASK = 0xFFFFFFFF


def partition_of(partitioner: str, key: bytes, count: int) -> int | None:
    """Returns the partition of a key; None if it may be in any.

    Args:
        partitioner: a value of `view.partitioner`.
        count: of the topic's partitions.
    """
    if partitioner == MURMUR2:
        return (murmur2(key) & 0x7FFFFFFF) % count
    if partitioner == CRC32 and key:
        return zlib.crc32(key) % count
    # librdkafka sends records with an empty key to any partition.
    return None


def murmur2(data: bytes) -> int:
    """Returns the 32-bit MurmurHash2 of `data`, with Kafka's seed."""
    size = len(data)
    hashed = SEED ^ size
    for at in range(0, size - 3, 4):
        word = int.from_bytes(data[at : at + 4], "little") * FACTOR & MASK
        word = (word ^ word >> SHIFT) * FACTOR & MASK
        hashed = hashed * FACTOR & MASK ^ word
    tail = data[size & ~3 :]
    if tail:
        hashed = (hashed ^ int.from_bytes(tail, "little")) * FACTOR & MASK
    hashed = (hashed ^ hashed >> 13) * FACTOR & MASK
    return hashed ^ hashed >> 15
