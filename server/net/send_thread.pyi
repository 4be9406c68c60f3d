"""Sends small answers on a thread that never takes the GIL.

A third of the time of a small request is the system call that sends its answer. A thread that does not
need the interpreter can make it while the loop runs the next requests.
"""

from typing import Protocol

ANSWER_BYTES_MAX: int
"""The largest answer that the thread sends."""

class Sending(Protocol):
    """What hands answers over: `Outbox`."""

    def not_sent(self, rest: bytes, error: int) -> None:
        """Take back what the kernel did not take, with the errno, or 0 if `send` did not fail."""

class SendThread:
    """A ring of answers and the thread that sends them, in order. Only one thread may call it.

    The thread tries each answer once. It does not wait for a peer.
    """

    slots: int
    event: int
    """An eventfd that becomes readable when an answer was not sent whole: read it, then ask `unsent`."""

    def __init__(self, slots: int, send_address: int = 0) -> None:
        """Start the thread.

        Args:
            slots: how many answers may be under way.
            send_address: the address of a function that replaces the system's `send`, for tests.

        Raises:
            RuntimeError, OSError, MemoryError: out of threads, descriptors or memory.
        """

    def put(self, owner: Sending, descriptor: int, answer: bytes | bytearray) -> int | None:
        """Copy an answer into the ring. The descriptor must stay open until the answer has a result or
        is withdrawn. Returns its ticket, or None if the ring is full or the answer has the wrong size.
        """

    def wake(self) -> None:
        """Wake the thread, if it sleeps and there is an answer to send."""

    def withdraw(self, ticket: int) -> bytes:
        """Take an answer back, and return it. If the thread has begun to send it, wait until it has a
        result, which `unsent` returns, and return nothing."""

    def unsent(self) -> list[tuple[Sending, bytes, int]]:
        """Returns the answers whose result is new and that were not sent whole: their owners, the
        bytes that were not sent, and the errno, or 0. Makes room for as many as have a result."""

    def close(self) -> None:
        """Send what is in the ring, and stop the thread. Closing twice is allowed."""
