"""No two brokers of the tests get the same port, also while one of them is down."""

from __future__ import annotations

from tests.harness.broker_process import WORKER, WORKERS_MAX, WORKERS_PORTS, free_ports


def test_a_port_is_not_returned_again_soon_and_belongs_to_this_worker() -> None:
    ports = [port for _ in range(50) for port in free_ports(2)]

    assert len(set(ports)) == 100
    assert set(ports) <= set(WORKERS_PORTS)
    assert {(port - 15_000) % WORKERS_MAX for port in ports} == {WORKER}
