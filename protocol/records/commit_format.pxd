"""The keys and values of committed offsets, for the compiled modules that read them by the million.

`protocol/internal_topics/group_records.py` draws them.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from protocol.records.record_format cimport load_int16, load_int32, load_int64


cdef enum:
    COMMIT_TYPE_MAX = 1
    VALUE_VERSION_MAX = 4
    WITH_EXPIRY = 1
    WITH_EPOCH = 3
    FLEXIBLE = 4
    TOPIC_ID_TAG = 0
    TOPIC_ID_SIZE = 16


# A parsed key of a commit; the names point into the record.
cdef struct commit_key:
    const uint8_t *names     # group and topic, each after its length
    const uint8_t *group
    const uint8_t *topic
    int32_t names_size
    int32_t partition
    int16_t group_size
    int16_t topic_size


cdef inline bint parse_key(const uint8_t *at, int32_t size, commit_key *key) noexcept nogil:
    """Returns whether the bytes after the type are exactly a group, a topic and a partition."""
    cdef const uint8_t *end = at + size
    key.names = at
    if end - at < 2:
        return False
    key.group_size = load_int16(at)
    key.group = at + 2
    if key.group_size < 0 or end - key.group < key.group_size + 2:
        return False
    key.topic_size = load_int16(key.group + key.group_size)
    key.topic = key.group + key.group_size + 2
    if key.topic_size < 0 or end - key.topic != key.topic_size + 4:
        return False
    key.names_size = <int32_t> (key.topic + key.topic_size - at)
    key.partition = load_int32(key.topic + key.topic_size)
    return True


# A parsed value of a commit; the metadata and the topic's id point into the record.
cdef struct commit_value:
    int64_t offset
    int64_t commit_timestamp
    int64_t expire_timestamp
    const uint8_t *metadata
    const uint8_t *topic_id   # NULL: none
    int32_t metadata_size
    int32_t leader_epoch


cdef inline bint read_unsigned(const uint8_t **at, const uint8_t *end, uint32_t *value) noexcept nogil:
    cdef int shift = 0
    cdef uint8_t byte
    value[0] = 0
    while at[0] < end and shift < 35:
        byte = at[0][0]
        at[0] += 1
        value[0] |= <uint32_t> (byte & 0x7F) << shift
        if byte < 0x80:
            return True
        shift += 7
    return False


cdef inline bint parse_tags(const uint8_t **at, const uint8_t *end, commit_value *value) noexcept nogil:
    cdef uint32_t count = 0
    cdef uint32_t tag = 0
    cdef uint32_t size = 0
    if not read_unsigned(at, end, &count):
        return False
    while count > 0:
        if not read_unsigned(at, end, &tag) or not read_unsigned(at, end, &size):
            return False
        if <int64_t> size > end - at[0]:
            return False
        if tag == TOPIC_ID_TAG:
            if size != TOPIC_ID_SIZE:
                return False
            value.topic_id = at[0]
        at[0] += size
        count -= 1
    return True


cdef inline bint parse_value(const uint8_t *at, int32_t size, int version, commit_value *value) noexcept nogil:
    """Returns whether the bytes after the version are exactly a value of that version."""
    cdef const uint8_t *end = at + size
    cdef uint32_t length = 0
    value.leader_epoch = -1
    value.expire_timestamp = -1
    value.topic_id = NULL
    if end - at < 12:
        return False
    value.offset = load_int64(at)
    at += 8
    if version >= WITH_EPOCH:
        value.leader_epoch = load_int32(at)
        at += 4
    if version >= FLEXIBLE:
        if not read_unsigned(&at, end, &length) or length == 0 or length > 0x8000:
            return False
        value.metadata_size = <int32_t> length - 1
    else:
        if end - at < 2:
            return False
        value.metadata_size = load_int16(at)
        at += 2
    if value.metadata_size < 0 or end - at < value.metadata_size + 8:
        return False
    value.metadata = at
    at += value.metadata_size
    value.commit_timestamp = load_int64(at)
    at += 8
    if version == WITH_EXPIRY:
        if end - at < 8:
            return False
        value.expire_timestamp = load_int64(at)
        at += 8
    if version >= FLEXIBLE and not parse_tags(&at, end, value):
        return False
    return at == end
