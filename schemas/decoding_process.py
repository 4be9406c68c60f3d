"""The decoding process as its parent sees it: started at the first value, and again after it has ended.

It is a new interpreter that inherits one descriptor, its end of a pair of sockets.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys

import msgspec

from schemas.decoding_frames import Answer, Request, receive, send
from schemas.outcomes import BAD_VALUE, TOO_COMPLEX, Decoded, Outcome, Undecoded
from schemas.schema import Schema

_log = logging.getLogger("schemas.decoding_process")

ANSWER_SECONDS_MAX = 20.0
"""The child's own bound is one of CPU time; this is for one that gets none, or was stopped."""
KILLED_SECONDS = 10.0


class DecodingProcess:
    """Decodes values in a process of its own. One thread at a time."""

    __slots__ = ("_child", "_peer")

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._peer: socket.socket | None = None

    def decode(self, schema: Schema, data: bytes) -> Outcome:
        """Returns what a value with its header is as JSON, or why it is not decoded. Blocks."""
        try:
            answer = self._answer(Request(schema, data))
        except (OSError, EOFError) as error:
            return Undecoded(schema_id=schema.id, code=TOO_COMPLEX, reason=self._ended(error))
        if not answer.code:
            return Decoded(schema_id=schema.id, schema_type=schema.type, json=answer.json)
        reason = answer.reason
        if answer.code == TOO_COMPLEX:
            self.close()  # Its memory is exhausted.
        if answer.code == BAD_VALUE:
            reason = f"the bytes are no value of schema {schema.id}: {reason}"
        return Undecoded(schema_id=schema.id, code=answer.code, reason=reason)

    def close(self) -> None:
        """End the child, and wait until it has ended. `decode` starts another one."""
        if self._peer is not None:
            self._peer.close()
            self._peer = None
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        try:
            child.wait(KILLED_SECONDS)
        except subprocess.TimeoutExpired:
            _log.warning("the decoding process %d was killed and has not ended", child.pid)

    def _answer(self, request: Request) -> Answer:
        """Send a request to the child, and return its answer. Raises OSError, EOFError."""
        if self._peer is None:
            self._start()
        assert self._peer is not None
        send(self._peer, request)
        return msgspec.msgpack.decode(receive(self._peer), type=Answer)

    def _start(self) -> None:
        """Start the child. Raises OSError."""
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
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )

    def _ended(self, error: Exception) -> str:
        """Returns why there is no answer, and leaves no child behind."""
        child = self._child
        if child is None:
            self.close()
            return f"no process could be started that decodes it: {error}"
        if isinstance(error, TimeoutError):
            why = f"it gave no answer within {ANSWER_SECONDS_MAX:g} s"
        else:
            why = _signal_text(child.wait(KILLED_SECONDS))
        _log.warning("a value has ended the process that decodes: %s", why)
        self.close()
        return f"the process that decodes has ended with it: {why}"


def _signal_text(status: int) -> str:
    match -status:
        case signal.SIGPROF:
            return "it took too much time"
        case signal.SIGSEGV | signal.SIGABRT | signal.SIGBUS:
            return "it is nested too deeply, or takes too much memory"
        case number if number > 0:
            return f"signal {number}"
    return f"status {status}"
