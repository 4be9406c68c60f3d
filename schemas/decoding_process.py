"""The decoding process as its parent sees it: started at the first value, and again after it ended.

It is a new interpreter. It inherits one descriptor, its end of a pair of sockets, and of the environment
only where programs and temporary files are. Its folder of temporary files ends with it.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections import OrderedDict
from contextlib import suppress
from hashlib import blake2b

import msgspec

from schemas.decoding_frames import Answer, Request, receive, send
from schemas.outcomes import BAD_VALUE, TOO_COMPLEX, Decoded, Outcome, Undecoded
from schemas.schema import Schema

_log = logging.getLogger("schemas.decoding_process")

ANSWER_SECONDS_MAX = 20.0
"""The child's own bound is one of CPU time; this is for one that gets none, or was stopped."""
KILLED_SECONDS = 10.0
REMEMBERED_MAX = 1_000
"""So many of the values are remembered that have ended a child."""
_FATAL = {signal.SIGPROF, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS}
"""How a value ends a child; any other signal comes from outside."""


class DecodingProcess:
    """Decodes values in a process of its own. One thread at a time."""

    __slots__ = ("_child", "_fatal", "_peer", "_scratch")

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._peer: socket.socket | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._fatal = OrderedDict[bytes, Undecoded]()
        """What values have ended a child, by their digests."""

    def decode(self, schema: Schema, data: bytes) -> Outcome:
        """Returns what a value with its header is as JSON, or why it is not decoded. Blocks."""
        if self._fatal and (known := self._fatal.get(_digest(schema, data))) is not None:
            return known
        try:
            answer = self._answer(Request(schema, data))
        except (OSError, EOFError, msgspec.MsgspecError) as error:
            is_fatal, reason = self._ended(error)
            answer = Answer(code=TOO_COMPLEX, reason=reason)
        else:
            is_fatal = answer.code == TOO_COMPLEX
        if not answer.code:
            return Decoded(schema_id=schema.id, schema_type=schema.type, json=answer.json)
        undecoded = _undecoded(schema, answer)
        if is_fatal:
            self.close()  # If it is there, its memory is exhausted.
            self._remember(_digest(schema, data), undecoded)
        return undecoded

    def close(self) -> None:
        """End the child, and wait until it has ended. `decode` starts another one."""
        if self._peer is not None:
            self._peer.close()
            self._peer = None
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            try:
                child.wait(KILLED_SECONDS)
            except subprocess.TimeoutExpired:
                _log.warning("the decoding process %d was killed and has not ended", child.pid)
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def _remember(self, digest: bytes, undecoded: Undecoded) -> None:
        self._fatal[digest] = undecoded
        if len(self._fatal) > REMEMBERED_MAX:
            self._fatal.popitem(last=False)

    def _answer(self, request: Request) -> Answer:
        """Send a request to the child, and return its answer. Raises OSError, EOFError."""
        if self._peer is None:
            self._start()
        assert self._peer is not None
        send(self._peer, request)
        return msgspec.msgpack.decode(receive(self._peer), type=Answer)

    def _start(self) -> None:
        """Start the child. Raises OSError."""
        self._scratch = tempfile.TemporaryDirectory(prefix="kompakt-decoding-")
        self._peer, child_end = socket.socketpair()
        self._peer.settimeout(ANSWER_SECONDS_MAX)
        with child_end:
            descriptor = child_end.fileno()
            self._child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                # -P: nothing is imported from the working directory.
                [sys.executable, "-P", "-m", "schemas.decoding_child", str(descriptor)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(descriptor,),
                # The terminal's Ctrl-C reaches the parent, which ends it.
                start_new_session=True,
                env={
                    "PATH": os.environ.get("PATH", os.defpath),
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    "TMPDIR": self._scratch.name,
                },
            )

    def _ended(self, error: Exception) -> tuple[bool, str]:
        """Returns whether the value has ended the child, and why there is no answer.

        No child is left.
        """
        child = self._child
        if child is None or not isinstance(error, EOFError | ConnectionError):
            self.close()
            is_late = isinstance(error, TimeoutError)
            why = f"within {ANSWER_SECONDS_MAX:g} s" if is_late else f"({error})"
            return False, f"the process that decodes gives no answer {why}"
        # Its end of the sockets is closed, so it ends. If not, it is killed.
        with suppress(subprocess.TimeoutExpired):
            child.wait(KILLED_SECONDS)
        self.close()
        why = _signal_text(child.returncode)
        _log.warning("the process that decodes has ended with a value: %s", why)
        return -child.returncode in _FATAL, f"the process that decodes has ended with it: {why}"


def _digest(schema: Schema, data: bytes) -> bytes:
    return blake2b(data, digest_size=16, key=schema.id.to_bytes(4, "big")).digest()


def _undecoded(schema: Schema, answer: Answer) -> Undecoded:
    reason = answer.reason
    if answer.code == BAD_VALUE:
        reason = f"the bytes are no value of schema {schema.id}: {reason}"
    return Undecoded(schema_id=schema.id, code=answer.code, reason=reason)


def _signal_text(status: int) -> str:
    match -status:
        case signal.SIGPROF:
            return "it took too much time"
        case signal.SIGSEGV | signal.SIGABRT | signal.SIGBUS:
            return "it is nested too deeply, or takes too much memory"
        case number if number > 0:
            return f"signal {number}"
    return f"status {status}"
