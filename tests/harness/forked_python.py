"""Starts `python -m MODULE` as a fork of a process that has already imported what the module needs.

A short program spends most of its processor time on imports, and a run of all tests starts a thousand
of them. A fork has its own arguments, environment, standard streams and exit code, no other descriptors,
and ends like any interpreter.

    test                                importing process             program
      | module, arguments, streams, status -> |                          |
      |                                       | fork ------------------> | runs the module
      | <------------------------------- pid  |                          |
      | <------------------------- exit code  | <----------------- exit  |
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

CHECKOUT = Path(__file__).resolve().parents[2]
REQUEST_BYTES_MAX = 128 << 10
ANSWER_BYTES_MAX = 32
STREAMS = 3
CLIENT_LIBRARIES = ("aiokafka", "confluent_kafka", "kafka")


class ForkedProgram:
    """One program, with the methods of `subprocess.Popen`. Any thread may call them."""

    def __init__(self, args: Sequence[str], status: socket.socket) -> None:
        self.args = args
        self.pid = int(status.recv(ANSWER_BYTES_MAX))
        self.returncode: int | None = None
        self._status = status
        self._lock = threading.Lock()
        # Not once it has ended: another thread may still wait for it.
        weakref.finalize(self, status.close)

    def poll(self) -> int | None:
        """Returns the exit code, the negative number of the signal that ended it, or None."""
        return self._exit_code(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end. Returns the exit code. Raises subprocess.TimeoutExpired."""
        code = self._exit_code(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _exit_code(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            ready = select.poll()
            ready.register(self._status, select.POLLIN)
            if ready.poll(None if timeout is None else timeout * 1000):
                with self._lock:
                    if self.returncode is None:
                        self.returncode = int(self._status.recv(ANSWER_BYTES_MAX))
        return self.returncode


class ImportingProcess:
    """The process that imports; it ends with the tests' process."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno()), *modules],
                cwd=CHECKOUT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def start(
        self,
        args: Sequence[str],
        *,
        environment: Mapping[str, str],
        streams: Sequence[int],
    ) -> ForkedProgram:
        """Start a module with arguments; `streams` are descriptors for the three standard streams."""
        request = json.dumps([list(args), dict(environment)]).encode()
        assert len(request) <= REQUEST_BYTES_MAX
        status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self._control, [request], [*streams, theirs.fileno()])
        return ForkedProgram(args, status)

    def close(self) -> None:
        self._control.close()
        self._process.wait()


@functools.cache
def importing_process(modules: tuple[str, ...]) -> ImportingProcess:
    """Returns the process that has imported these modules. It starts at the first call."""
    process = ImportingProcess(modules)
    atexit.register(process.close)
    return process


def start_python(
    command: Sequence[str],
    imports: tuple[str, ...],
    *,
    stdin: int | None = None,
    stdout: IO[bytes],
    stderr: IO[bytes],
    environment: Mapping[str, str] | None = None,
) -> ForkedProgram | subprocess.Popen[bytes]:
    """Start a command in the checkout: `python -m ...` as a fork, any other as usual.

    Args:
        imports: modules to import before the fork; not the command's own.
        stdin: a descriptor; by default it reads nothing.
    """
    environment = os.environ if environment is None else environment
    with contextlib.ExitStack() as opened:
        if stdin is None:
            stdin = opened.enter_context(Path(os.devnull).open()).fileno()
        if list(command[:2]) == [sys.executable, "-m"]:
            streams = [stdin, stdout.fileno(), stderr.fileno()]
            forks = importing_process(imports)
            return forks.start(command[2:], environment=environment, streams=streams)
        return subprocess.Popen(
            command, cwd=CHECKOUT, env=environment, stdin=stdin, stdout=stdout, stderr=stderr
        )


# The importing process.


class Forks:
    """Forks for each request, and reports how the forks end."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._events = select.poll()
        self._events.register(control, select.POLLIN)
        self._running: dict[int, tuple[int, socket.socket]] = {}
        """The pid and the status socket of each program, by its pidfd."""

    def serve(self) -> list[str]:
        """Returns the module and arguments in each fork. In this process it does not return."""
        while True:
            for ready, _ in self._events.poll():
                if ready in self._running:
                    self._reap(ready)
                    continue
                request, descriptors, _, _ = socket.recv_fds(
                    self._control, REQUEST_BYTES_MAX, STREAMS + 1
                )
                if not request:
                    sys.exit(0)
                pid = os.fork()
                if pid == 0:
                    self._close()
                    return become(request, descriptors[:STREAMS])
                self._watch(pid, descriptors)

    def _close(self) -> None:
        """Let go of the descriptors, whose numbers a fork uses for its own files."""
        self._control.close()
        for _, status in self._running.values():
            status.close()

    def _watch(self, pid: int, descriptors: Sequence[int]) -> None:
        for descriptor in descriptors[:STREAMS]:
            os.close(descriptor)
        status = socket.socket(fileno=descriptors[STREAMS])
        status.send(b"%d" % pid)
        pidfd = os.pidfd_open(pid)
        self._running[pidfd] = pid, status
        self._events.register(pidfd, select.POLLIN)

    def _reap(self, pidfd: int) -> None:
        pid, status = self._running.pop(pidfd)
        self._events.unregister(pidfd)
        os.close(pidfd)
        _, ended = os.waitpid(pid, 0)
        with status, contextlib.suppress(BrokenPipeError):
            status.send(b"%d" % os.waitstatus_to_exitcode(ended))


def become(request: bytes, streams: Sequence[int]) -> list[str]:
    """Take the streams and the environment of a request. Returns the module and its arguments."""
    args, environment = json.loads(request)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.closerange(STREAMS, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(environment)
    return [str(arg) for arg in args]


def main() -> None:
    control, *modules = sys.argv[1:]
    for module in modules:
        importlib.import_module(module)
    gc.freeze()  # The collector of a fork would copy memory that the forks share.
    module, *arguments = Forks(socket.socket(fileno=int(control))).serve()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
