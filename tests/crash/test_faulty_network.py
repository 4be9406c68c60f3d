"""The network of the mirror soak fails as each trouble says (`tests/harness/faulty_network.py`)."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.harness.broker_process import free_ports
from tests.harness.faulty_network import FaultyNetwork, Trouble
from tests.harness.group_run import until

SENT = bytes(range(200)) * 100
SECONDS_MAX = 30.0


@contextmanager
def echoed() -> Iterator[FaultyNetwork]:
    """Yields a network to a server that sends back what it gets."""
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        with FaultyNetwork(port, random.Random(1)) as network:
            yield network


def serve(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # The test is over.
        threading.Thread(target=echo, args=(connection,), daemon=True).start()


def echo(connection: socket.socket) -> None:
    with connection:
        try:
            while data := connection.recv(1 << 16):
                connection.sendall(data)
        except OSError:
            pass  # It was reset.


@contextmanager
def client_of(network: FaultyNetwork) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", network.port), timeout=SECONDS_MAX) as client:
        client.sendall(b"first")
        assert received(client, 5) == b"first"
        yield client


def received(client: socket.socket, count: int) -> bytes:
    """Returns so many bytes, or what comes before the end."""
    data = b""
    while len(data) < count and (piece := client.recv(count - len(data))):
        data += piece
    return data


def wait_until_met(network: FaultyNetwork, trouble: Trouble) -> None:
    until(f"{trouble} is met", lambda: network.met[trouble] > 0, str)


def test_late_bytes_keep_their_order() -> None:
    with echoed() as network, client_of(network) as client:
        with network.trouble(Trouble.DELAY):
            client.sendall(SENT)
            assert received(client, len(SENT)) == SENT
        assert network.met[Trouble.DELAY]


def test_a_stalled_connection_continues_when_the_stall_ends() -> None:
    with echoed() as network, client_of(network) as client:
        with network.trouble(Trouble.STALL):
            client.sendall(SENT)
            wait_until_met(network, Trouble.STALL)
        assert received(client, len(SENT)) == SENT


def test_a_reset_breaks_connections_and_new_ones() -> None:
    with echoed() as network, client_of(network) as client, network.trouble(Trouble.RESET):
        client.sendall(SENT)
        with pytest.raises(ConnectionError):
            assert len(received(client, len(SENT))) == len(SENT)
        with pytest.raises(ConnectionError), client_of(network):
            pass


def test_a_half_closed_connection_ends_early_without_an_error() -> None:
    with echoed() as network, client_of(network) as client:
        with network.trouble(Trouble.HALF_CLOSE):
            client.sendall(SENT)
            while len(received(client, len(SENT))) == len(SENT):
                client.sendall(SENT)
        assert network.met[Trouble.HALF_CLOSE]


def test_a_lost_connection_stays_silent_and_a_new_one_does_not() -> None:
    with echoed() as network, client_of(network) as client:
        with network.trouble(Trouble.LOSS):
            client.sendall(SENT)
            wait_until_met(network, Trouble.LOSS)
        with client_of(network):
            client.sendall(SENT)
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)
