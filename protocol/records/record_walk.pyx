# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, embedsignature=False
"""A walk over the records of a batch, window by window. `record_walk.pyi` is the contract."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from protocol.wire.errors import CorruptBatch
from protocol.records.record_format cimport (
    RECORD_BAD_HEADERS,
    RECORD_BAD_KEY,
    RECORD_BAD_LENGTH,
    RECORD_BAD_VALUE,
    RECORD_CUT,
    RECORD_OK,
    RECORD_TRAILING,
    read_record,
    record_status_text,
    record_view,
)

cdef enum:
    # Below this size, releasing the GIL costs more than the work.
    NOGIL_BYTES_MIN = 1024
    NO_TIMESTAMP = -1
    UNFIT_KEPT_MAX = 1000

UNFIT_MAX = UNFIT_KEPT_MAX
TIMESTAMP_MIN = -(2**63)
TIMESTAMP_MAX = 2**63 - 1

# The field that the walk has reached in a record that a window has cut.
cdef enum step:
    AT_LENGTH
    AT_ATTRIBUTES
    AT_TIMESTAMP
    AT_OFFSET
    AT_KEY
    AT_VALUE
    AT_HEADER_COUNT
    AT_HEADER_KEY
    AT_HEADER_VALUE
    AT_END

# Results of `read_parts` and `read_number` without an error.
cdef enum progress:
    WINDOW_IS_OVER = -1
    IS_READ = RECORD_OK

# A record that a window holds only in part.
cdef struct cut_record:
    int at                   # A `step`.
    int64_t left             # Bytes of the record that are still to come.
    int64_t skip             # Bytes of a key or value that are still to come.
    int64_t headers_left
    uint64_t raw             # The number that is being read, and how many of its bits were read.
    int bits
    int64_t timestamp_delta
    int32_t offset_delta
    bint is_keyless

cdef struct unfit_record:
    int64_t index
    int64_t timestamp
    bint is_keyless

cdef struct walk_state:
    # Requirements on the records; constant.
    int64_t count
    int64_t base_timestamp
    int64_t timestamp_from
    int64_t timestamp_to
    bint is_dense
    bint is_keyed
    # Results so far.
    int64_t index            # Records read.
    int64_t last_delta
    int64_t first_keyless
    int64_t youngest
    int64_t unfit_count
    int64_t untimely_count
    unfit_record *unfit      # Space for UNFIT_KEPT_MAX of them, allocated for the first one.
    cut_record cut
    # The fault; if status is RECORD_OK and no other field is set, there is none.
    int status
    int64_t bytes_behind
    bint is_out_of_place
    int32_t bad_delta


cdef int read_number(
    cut_record *cut, const uint8_t **position, const uint8_t *end, int64_t *out
) noexcept nogil:
    """Continue with a varint. Returns WINDOW_IS_OVER (negative), or a positive status if malformed."""
    cdef bint is_long = cut.at == AT_TIMESTAMP
    cdef bint is_inside = cut.at != AT_LENGTH
    cdef uint8_t byte
    while position[0] < end:
        if is_inside and cut.left == 0:
            return 1
        byte = position[0][0]
        position[0] += 1
        cut.left -= is_inside
        if cut.bits == 63 and byte > 1:
            return 1
        cut.raw |= <uint64_t> (byte & 0x7f) << cut.bits
        cut.bits += 7
        if byte < 0x80:
            if not is_long and (cut.bits > 35 or cut.raw > 0xFFFFFFFFu):
                return 1
            out[0] = <int64_t> ((cut.raw >> 1) ^ (0 - (cut.raw & 1)))
            cut.raw = 0
            cut.bits = 0
            return IS_READ
        if cut.bits >= 70:
            return 1
    return WINDOW_IS_OVER


cdef int bad_field(int at) noexcept nogil:
    """Returns the status of a record whose field at this step does not fit."""
    if at == AT_LENGTH:
        return RECORD_CUT
    if at == AT_TIMESTAMP or at == AT_OFFSET:
        return RECORD_BAD_LENGTH
    if at == AT_KEY:
        return RECORD_BAD_KEY
    if at == AT_VALUE:
        return RECORD_BAD_VALUE
    return RECORD_BAD_HEADERS


cdef bint take_size(cut_record *cut, int64_t size, bint nullable) noexcept nogil:
    """Skip a key or a value of this size. Returns whether it fits."""
    if size > cut.left or size < (-1 if nullable else 0):
        return False
    cut.skip = size if size > 0 else 0
    return True


cdef int take_number(cut_record *cut, int64_t number) noexcept nogil:
    """Store the number of the current field, and go to the next field."""
    if cut.at == AT_LENGTH:
        if number < 1:
            return RECORD_BAD_LENGTH
        cut.left = number
        cut.at = AT_ATTRIBUTES
    elif cut.at == AT_TIMESTAMP:
        cut.timestamp_delta = number
        cut.at = AT_OFFSET
    elif cut.at == AT_OFFSET:
        cut.offset_delta = <int32_t> number
        cut.at = AT_KEY
    elif cut.at == AT_KEY:
        if not take_size(cut, number, True):
            return RECORD_BAD_KEY
        cut.is_keyless = number < 0
        cut.at = AT_VALUE
    elif cut.at == AT_VALUE:
        if not take_size(cut, number, True):
            return RECORD_BAD_VALUE
        cut.at = AT_HEADER_COUNT
    elif cut.at == AT_HEADER_COUNT:
        if number < 0:
            return RECORD_BAD_HEADERS
        cut.headers_left = number
        cut.at = AT_HEADER_KEY if number > 0 else AT_END
    elif cut.at == AT_HEADER_KEY:
        if not take_size(cut, number, False):
            return RECORD_BAD_HEADERS
        cut.at = AT_HEADER_VALUE
    else:
        if not take_size(cut, number, True):
            return RECORD_BAD_HEADERS
        cut.headers_left -= 1
        cut.at = AT_HEADER_KEY if cut.headers_left > 0 else AT_END
    return RECORD_OK


cdef int read_parts(
    cut_record *cut, const uint8_t **position, const uint8_t *end
) noexcept nogil:
    """Continue with a record that this window or an earlier one cut. Returns IS_READ, WINDOW_IS_OVER
    or the status of its fault."""
    cdef int64_t number = 0
    cdef int64_t step
    cdef int status
    while True:
        if cut.skip > 0:
            step = min(cut.skip, <int64_t> (end - position[0]))
            position[0] += step
            cut.skip -= step
            cut.left -= step
            if cut.skip > 0:
                return WINDOW_IS_OVER
        if cut.at == AT_END:
            if cut.left == 0:
                cut.at = AT_LENGTH
                return IS_READ
            return WINDOW_IS_OVER if position[0] == end else RECORD_TRAILING
        if position[0] == end:
            return WINDOW_IS_OVER
        if cut.at == AT_ATTRIBUTES:
            position[0] += 1
            cut.left -= 1
            cut.at = AT_TIMESTAMP
            continue
        status = read_number(cut, position, end, &number)
        if status == WINDOW_IS_OVER:
            return WINDOW_IS_OVER
        if status != IS_READ:
            return bad_field(cut.at)
        status = take_number(cut, number)
        if status != RECORD_OK:
            return status


cdef bint note_unfit(walk_state *walk, int64_t timestamp, bint is_keyless) noexcept nogil:
    """Note that the record at `walk.index` is unfit. Returns False without memory."""
    if walk.unfit_count < UNFIT_KEPT_MAX:
        if walk.unfit == NULL:
            walk.unfit = <unfit_record *> malloc(UNFIT_KEPT_MAX * sizeof(unfit_record))
            if walk.unfit == NULL:
                return False
        walk.unfit[walk.unfit_count].index = walk.index
        walk.unfit[walk.unfit_count].timestamp = timestamp
        walk.unfit[walk.unfit_count].is_keyless = is_keyless
    walk.unfit_count += 1
    walk.untimely_count += not is_keyless
    return True


cdef bint judge(
    walk_state *walk, int32_t offset_delta, int64_t timestamp_delta, bint is_keyless
) noexcept nogil:
    """Returns whether a sound record has a valid offset delta, and notes its results."""
    cdef int64_t timestamp
    if offset_delta <= walk.last_delta or (walk.is_dense and offset_delta != walk.index):
        walk.is_out_of_place = True
        walk.bad_delta = offset_delta
        return False
    walk.last_delta = offset_delta
    if is_keyless and walk.first_keyless < 0:
        walk.first_keyless = walk.index
    # Unsigned, because clients' bytes may overflow; it wraps as in Java.
    timestamp = <int64_t> (<uint64_t> walk.base_timestamp + <uint64_t> timestamp_delta)
    if timestamp > walk.youngest or walk.index == 0:
        walk.youngest = timestamp
    if is_keyless and walk.is_keyed:
        if not note_unfit(walk, timestamp, True):
            return False
    elif timestamp != NO_TIMESTAMP and (
        timestamp < walk.timestamp_from or timestamp > walk.timestamp_to
    ):
        if not note_unfit(walk, timestamp, False):
            return False
    walk.index += 1
    return True


cdef bint walk_window(walk_state *walk, const uint8_t *at, const uint8_t *end) noexcept nogil:
    """Returns whether the window's bytes are sound; a record may continue in the next window."""
    cdef record_view record
    cdef cut_record *cut = &walk.cut
    while at < end:
        if cut.at == AT_LENGTH and cut.bits == 0:
            if walk.index == walk.count:
                walk.bytes_behind = end - at
                return False
            walk.status = read_record(&at, end, &record)
            if walk.status == RECORD_OK:
                if not judge(walk, record.offset_delta, record.timestamp_delta, record.key_size < 0):
                    return False
                continue
            if walk.status != RECORD_CUT:
                return False
            # It continues in the next window, or its length is malformed.
        walk.status = read_parts(cut, &at, end)
        if walk.status == WINDOW_IS_OVER:
            walk.status = RECORD_OK
            return True
        if walk.status != IS_READ:
            return False
        if not judge(walk, cut.offset_delta, cut.timestamp_delta, cut.is_keyless):
            return False
    return True


cdef class RecordWalk:
    cdef walk_state _walk
    cdef bint _is_sound

    def __init__(
        self,
        int64_t record_count,
        *,
        int64_t base_timestamp,
        bint dense=True,
        bint keyed=False,
        int64_t timestamp_from=TIMESTAMP_MIN,
        int64_t timestamp_to=TIMESTAMP_MAX,
    ):
        if record_count < 0:
            raise CorruptBatch(f"a batch cannot have {record_count} records")
        self._is_sound = True
        self._walk.count = record_count
        self._walk.base_timestamp = base_timestamp
        self._walk.timestamp_from = timestamp_from
        self._walk.timestamp_to = timestamp_to
        self._walk.is_dense = dense
        self._walk.is_keyed = keyed
        self._walk.last_delta = self._walk.first_keyless = -1
        self._walk.youngest = NO_TIMESTAMP

    def __dealloc__(self):
        free(self._walk.unfit)

    def feed(self, const uint8_t[::1] window not None):
        cdef const uint8_t *start
        cdef const uint8_t *end
        if window.shape[0] > 0 and self._is_sound:
            start = &window[0]
            end = start + window.shape[0]
            if window.shape[0] <= NOGIL_BYTES_MIN:
                self._is_sound = walk_window(&self._walk, start, end)
            else:
                with nogil:
                    self._is_sound = walk_window(&self._walk, start, end)
        if not self._is_sound:
            raise self._fault()

    def finish(self):
        cdef walk_state *walk = &self._walk
        cdef RecordScan scan
        if self._is_sound and walk.index < walk.count:
            self._is_sound = False
            walk.status = RECORD_CUT
        if not self._is_sound:
            raise self._fault()
        scan = RecordScan.__new__(RecordScan)
        scan.first_keyless = walk.first_keyless
        scan.last_offset_delta = walk.last_delta
        scan.youngest_timestamp = walk.youngest
        scan.unfit_count = walk.unfit_count
        scan.untimely_count = walk.untimely_count
        scan.unfit = tuple([
            (walk.unfit[i].index, None if walk.unfit[i].is_keyless else walk.unfit[i].timestamp)
            for i in range(min(walk.unfit_count, UNFIT_KEPT_MAX))
        ])
        return scan

    cdef object _fault(self):
        cdef walk_state *walk = &self._walk
        if walk.bytes_behind > 0:
            return CorruptBatch(f"{walk.bytes_behind} bytes are left behind the {walk.count} records")
        if walk.is_out_of_place:
            return CorruptBatch(
                f"record {walk.index} has offset delta {walk.bad_delta}, out of place"
            )
        if walk.status == RECORD_OK:
            return MemoryError()
        text = record_status_text(walk.status).decode()
        return CorruptBatch(f"record {walk.index} of {walk.count} {text}")


cdef class RecordScan:
    cdef readonly:
        int64_t first_keyless
        int64_t last_offset_delta
        int64_t youngest_timestamp
        int64_t unfit_count
        int64_t untimely_count
        tuple unfit


def scan_records(
    const uint8_t[::1] records not None, int64_t record_count, *, int64_t base_timestamp, bint dense=True
):
    walk = RecordWalk(record_count, base_timestamp=base_timestamp, dense=dense)
    walk.feed(records)
    return walk.finish()
