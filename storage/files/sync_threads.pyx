# cython: language_level=3
"""Rounds of fdatasync on threads that never take the GIL. See sync_threads.pyi.

    begin ----> next=0, all idle threads wake
                each: take next -> fdatasync -> done += 1       (mutex held except during the sync)
                the last one: eventfd += 1
"""

import os
import threading

from libc.errno cimport EINTR, errno
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc

from storage.files.pthread cimport (
    pthread_cond_broadcast,
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
    int fdatasync(int)
    ssize_t write(int, const void *, size_t)


cdef int sync_error(int descriptor) noexcept nogil:
    """Sync a file. Returns 0, or the errno of the failure."""
    while fdatasync(descriptor) != 0:
        if errno != EINTR:
            return errno
    return 0


cdef class SyncThreads:

    # Constant after construction
    cdef readonly int threads_max
    cdef int event
    cdef pthread_mutex_t mutex
    cdef pthread_cond_t work
    # State of the caller
    cdef list threads
    # State, under `mutex`: the round's files are [0, count), those before `next` are taken.
    cdef int *descriptors
    cdef int *errors
    cdef Py_ssize_t capacity, count, next, done
    cdef bint is_closing

    def __cinit__(self, int threads_max):
        self.threads_max = threads_max
        self.threads = []
        self.event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        pthread_mutex_init(&self.mutex, NULL)
        pthread_cond_init(&self.work, NULL)

    def __dealloc__(self):
        # A running thread holds a reference to this object, so no thread runs here.
        pthread_cond_destroy(&self.work)
        pthread_mutex_destroy(&self.mutex)
        free(self.descriptors)
        free(self.errors)

    def fileno(self):
        return self.event

    def begin(self, descriptors):
        cdef Py_ssize_t count = len(descriptors), position
        if count == 0 or self.done < self.count:
            raise ValueError("a round needs a file, and the previous round must have ended")
        self._reserve(count)
        self._start_threads(count)
        cdef list found = list(descriptors)
        pthread_mutex_lock(&self.mutex)
        for position in range(count):
            self.descriptors[position] = found[position]
        self.count, self.next, self.done = count, 0, 0
        if count == 1:
            pthread_cond_signal(&self.work)
        else:
            pthread_cond_broadcast(&self.work)
        pthread_mutex_unlock(&self.mutex)

    @property
    def is_over(self):
        pthread_mutex_lock(&self.mutex)
        cdef bint is_over = self.done == self.count
        pthread_mutex_unlock(&self.mutex)
        return is_over

    def errors_of_round(self):
        if not self.is_over:
            raise ValueError("the round is still running")
        return [self.errors[position] for position in range(self.count)]

    def close(self):
        pthread_mutex_lock(&self.mutex)
        self.is_closing = True
        pthread_cond_broadcast(&self.work)
        pthread_mutex_unlock(&self.mutex)
        while self.threads:
            self.threads.pop().join()
        if self.event >= 0:
            os.close(self.event)
            self.event = -1

    cdef int _reserve(self, Py_ssize_t count) except -1:
        """Grow the arrays to `count` files. Called between rounds, when no thread reads them."""
        cdef int *grown
        if count <= self.capacity:
            return 0
        grown = <int *>realloc(self.descriptors, count * sizeof(int))
        if grown == NULL:
            raise MemoryError
        self.descriptors = grown
        grown = <int *>realloc(self.errors, count * sizeof(int))
        if grown == NULL:
            raise MemoryError
        self.errors = grown
        self.capacity = count
        return 0

    cdef int _start_threads(self, Py_ssize_t wanted) except -1:
        while len(self.threads) < min(wanted, self.threads_max):
            name = f"fdatasync-{len(self.threads)}"
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            thread.start()
            self.threads.append(thread)
        return 0

    def _serve(self):
        """Run one thread's loop until `close`."""
        with nogil:
            self._sync_files()

    cdef void _sync_files(self) noexcept nogil:
        cdef Py_ssize_t position
        cdef int error
        cdef uint64_t one = 1
        pthread_mutex_lock(&self.mutex)
        while not self.is_closing:
            if self.next == self.count:
                pthread_cond_wait(&self.work, &self.mutex)
                continue
            position = self.next
            self.next += 1
            pthread_mutex_unlock(&self.mutex)
            error = sync_error(self.descriptors[position])
            pthread_mutex_lock(&self.mutex)
            self.errors[position] = error
            self.done += 1
            if self.done == self.count:
                write(self.event, &one, sizeof(one))
        pthread_mutex_unlock(&self.mutex)
