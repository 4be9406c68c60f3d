# cython: language_level=3
"""Sends small answers on a thread that never takes the GIL. See send_thread.pyi.

    tickets      collected <= next <= end <= collected + slots      ticket n is in slot n % slots

    put -------> descriptor and bytes into slot `end`; end += 1
    wake ------> the thread wakes, if it sleeps
                 slot `next`: send -> result into the slot; next += 1    (mutex held except during send)
                 not sent whole: eventfd += 1
    unsent ----> the results of slots before `next`; collected = next
"""

import os
import threading

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport errno
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from storage.files.pthread cimport (
    pthread_cond_destroy,
    pthread_cond_init,
    pthread_cond_signal,
    pthread_cond_t,
    pthread_cond_wait,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_t,
    pthread_mutex_unlock,
)

cdef extern from "unistd.h" nogil:
    ssize_t write(int, const void *, size_t)

cdef extern from "sys/socket.h" nogil:
    int MSG_DONTWAIT
    int MSG_NOSIGNAL
    ssize_t send(int, const void *, size_t, int)

ctypedef ssize_t (*send_function)(int, const void *, size_t, int) noexcept nogil

cdef enum:
    SLOT_BYTES = 1024
    WITHDRAWN = -1  # in place of a slot's descriptor

ANSWER_BYTES_MAX = SLOT_BYTES

cdef struct Slot:
    int descriptor
    int error
    Py_ssize_t size
    Py_ssize_t sent
    char answer[SLOT_BYTES]


cdef const char *contents(answer) except NULL:
    if isinstance(answer, bytes):
        return PyBytes_AS_STRING(answer)
    return PyByteArray_AS_STRING(<bytearray?>answer)


cdef class SendThread:

    # Constant after construction
    cdef readonly int slots
    cdef readonly int event
    cdef send_function send_once
    cdef object thread
    cdef Slot *ring
    cdef pthread_mutex_t mutex
    cdef pthread_cond_t work, progress
    # State of the caller
    cdef list owners
    cdef long long collected
    # State, under `mutex`. While `is_sending`, the thread reads the slot `next` without it.
    cdef long long next, end
    cdef bint is_asleep, is_sending, is_awaited, is_closing

    def __cinit__(self, int slots, size_t send_address=0):
        self.slots = slots
        self.send_once = <send_function>send_address if send_address else send
        self.owners = [None] * slots
        self.ring = <Slot *>calloc(slots, sizeof(Slot))
        if self.ring == NULL:
            raise MemoryError
        pthread_mutex_init(&self.mutex, NULL)
        pthread_cond_init(&self.work, NULL)
        pthread_cond_init(&self.progress, NULL)
        self.event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.thread = threading.Thread(target=self._serve, name="send", daemon=True)
        try:
            self.thread.start()
        except RuntimeError:
            os.close(self.event)
            raise

    def __dealloc__(self):
        # A running thread holds a reference to this object, so no thread runs here.
        pthread_cond_destroy(&self.progress)
        pthread_cond_destroy(&self.work)
        pthread_mutex_destroy(&self.mutex)
        free(self.ring)

    def put(self, owner, int descriptor, answer):
        cdef Py_ssize_t size = len(answer)
        cdef long long ticket = self.end
        cdef Slot *slot = &self.ring[ticket % self.slots]
        if not 0 < size <= SLOT_BYTES or ticket - self.collected == self.slots:
            return None
        slot.descriptor, slot.size = descriptor, size
        memcpy(slot.answer, contents(answer), size)
        self.owners[ticket % self.slots] = owner
        pthread_mutex_lock(&self.mutex)
        self.end = ticket + 1
        pthread_mutex_unlock(&self.mutex)
        return ticket

    def wake(self):
        pthread_mutex_lock(&self.mutex)
        if self.is_asleep and self.next < self.end:
            self.is_asleep = False
            pthread_cond_signal(&self.work)
        pthread_mutex_unlock(&self.mutex)

    def withdraw(self, long long ticket):
        cdef Slot *slot = &self.ring[ticket % self.slots]
        cdef bint is_started
        if ticket < self.collected:
            return b""
        pthread_mutex_lock(&self.mutex)
        is_started = ticket < self.next + self.is_sending
        if not is_started:
            slot.descriptor = WITHDRAWN
        pthread_mutex_unlock(&self.mutex)
        if not is_started:
            self.owners[ticket % self.slots] = None
            return PyBytes_FromStringAndSize(slot.answer, slot.size)
        with nogil:
            self._wait_for(ticket)
        return b""

    def unsent(self):
        cdef list found = []
        cdef Slot *slot
        pthread_mutex_lock(&self.mutex)
        cdef long long next = self.next
        pthread_mutex_unlock(&self.mutex)
        while self.collected < next:
            slot = &self.ring[self.collected % self.slots]
            if slot.descriptor != WITHDRAWN and slot.sent < slot.size:
                rest = PyBytes_FromStringAndSize(slot.answer + slot.sent, slot.size - slot.sent)
                found.append((self.owners[self.collected % self.slots], rest, slot.error))
            self.owners[self.collected % self.slots] = None
            self.collected += 1
        return found

    def close(self):
        pthread_mutex_lock(&self.mutex)
        self.is_closing = True
        pthread_cond_signal(&self.work)
        pthread_mutex_unlock(&self.mutex)
        self.thread.join()
        if self.event >= 0:
            os.close(self.event)
            self.event = -1

    cdef void _wait_for(self, long long ticket) noexcept nogil:
        """Wait until an answer that the thread has begun to send has its result."""
        pthread_mutex_lock(&self.mutex)
        while self.next <= ticket:
            self.is_awaited = True
            pthread_cond_wait(&self.progress, &self.mutex)
        pthread_mutex_unlock(&self.mutex)

    def _serve(self):
        """Run the thread until `close`."""
        with nogil:
            self._send_answers()

    cdef void _send_answers(self) noexcept nogil:
        cdef Slot *slot
        cdef uint64_t one = 1
        pthread_mutex_lock(&self.mutex)
        while self.next < self.end or not self.is_closing:
            if self.next == self.end:
                self.is_asleep = True
                pthread_cond_wait(&self.work, &self.mutex)
                continue
            slot = &self.ring[self.next % self.slots]
            if slot.descriptor != WITHDRAWN:
                self.is_sending = True
                pthread_mutex_unlock(&self.mutex)
                self._send(slot)
                pthread_mutex_lock(&self.mutex)
                self.is_sending = False
                if slot.sent < slot.size:
                    write(self.event, &one, sizeof(one))
            self.next += 1
            if self.is_awaited:
                self.is_awaited = False
                pthread_cond_signal(&self.progress)
        pthread_mutex_unlock(&self.mutex)

    cdef void _send(self, Slot *slot) noexcept nogil:
        """Send an answer once. Fills in the bytes that the kernel took, and the errno if it took none."""
        slot.sent, slot.error = 0, 0
        cdef ssize_t sent = self.send_once(
            slot.descriptor, slot.answer, slot.size, MSG_DONTWAIT | MSG_NOSIGNAL
        )
        if sent < 0:
            slot.error = errno
        else:
            slot.sent = sent
