# cython: language_level=3
"""Reads the fields of a request from its frame, for the readers of plain requests."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from protocol.records.record_format cimport load_int16, load_int32, load_int64

# The part of a frame that was not read yet. Every read below checks that it holds the bytes.
cdef struct span:
    const uint8_t *at
    const uint8_t *end


cdef inline bint skip(span *rest, int64_t size) noexcept nogil:
    if size < 0 or size > rest.end - rest.at:
        return False
    rest.at += size
    return True


cdef inline bint skip_ascii(span *rest, int64_t size) noexcept nogil:
    """Skip a string. Returns False if it does not fit, or may not be UTF-8."""
    cdef uint8_t all_bits = 0
    cdef int64_t index
    if size < 0 or size > rest.end - rest.at:
        return False
    for index in range(size):
        all_bits |= rest.at[index]
    rest.at += size
    return all_bits < 0x80


cdef inline bint read_int16(span *rest, int16_t *out) noexcept nogil:
    if rest.end - rest.at < 2:
        return False
    out[0] = load_int16(rest.at)
    rest.at += 2
    return True


cdef inline bint read_int32(span *rest, int32_t *out) noexcept nogil:
    if rest.end - rest.at < 4:
        return False
    out[0] = load_int32(rest.at)
    rest.at += 4
    return True


cdef inline bint read_int64(span *rest, int64_t *out) noexcept nogil:
    if rest.end - rest.at < 8:
        return False
    out[0] = load_int64(rest.at)
    rest.at += 8
    return True


cdef inline bint read_unsigned(span *rest, int64_t *out) noexcept nogil:
    """Read a varint of up to four bytes; a longer one is not plain."""
    cdef int shift = 0
    cdef uint8_t byte
    out[0] = 0
    while rest.at < rest.end and shift < 28:
        byte = rest.at[0]
        rest.at += 1
        out[0] |= <int64_t> (byte & 0x7F) << shift
        if byte < 0x80:
            return True
        shift += 7
    return False


cdef inline bint read_size(span *rest, bint flexible, bint is_short, int64_t *out) noexcept nogil:
    """Read the size of an array, a string (`is_short`) or bytes; -1 is null."""
    cdef int16_t short_size
    cdef int32_t size
    if flexible:
        if not read_unsigned(rest, out):
            return False
        out[0] -= 1
        return True
    if is_short:
        if not read_int16(rest, &short_size):
            return False
        out[0] = short_size
        return True
    if not read_int32(rest, &size):
        return False
    out[0] = size
    return True


cdef inline bint is_one(span *rest, bint flexible) noexcept nogil:
    """Read the size of an array. Returns whether it has one element."""
    cdef int64_t size
    return read_size(rest, flexible, False, &size) and size == 1


cdef inline bint has_no_tags(span *rest) noexcept nogil:
    if rest.at == rest.end or rest.at[0] != 0:
        return False
    rest.at += 1
    return True


cdef inline bint read_header(
    span *rest,
    int16_t key,
    int16_t version_min,
    int16_t version_max,
    int16_t flexible_since,
    int16_t *version,
    int32_t *correlation_id,
) noexcept nogil:
    """Read a request's header. Returns False unless it is of this API and one of these versions, with an
    ASCII client id and no tags."""
    cdef int16_t api_key, client_id_size
    if not read_int16(rest, &api_key) or not read_int16(rest, version):
        return False
    if api_key != key or version[0] < version_min or version[0] > version_max:
        return False
    if not read_int32(rest, correlation_id):
        return False
    if not read_int16(rest, &client_id_size) or client_id_size < -1:
        return False
    if client_id_size > 0 and not skip_ascii(rest, client_id_size):
        return False
    return version[0] < flexible_since or has_no_tags(rest)
