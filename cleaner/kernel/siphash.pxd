"""Declarations of `siphash.h` for compiled modules; see there for the meaning of each name."""

from libc.stdint cimport uint8_t, uint64_t


cdef extern from "siphash.h" nogil:
    ctypedef struct kp_sip_key:
        pass
    ctypedef struct kp_sip_hash:
        uint64_t low
        uint64_t high
    kp_sip_key kp_sip_key_of(const uint8_t *secret)
    kp_sip_hash kp_sip128(const kp_sip_key *key, const uint8_t *data, size_t size)
    uint64_t kp_sip_load64(const uint8_t *from_)
    void kp_sip_store64(uint8_t *to, uint64_t word)
