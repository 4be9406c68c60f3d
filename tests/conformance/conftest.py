"""The broker that the real clients talk to, and the clients.

`KOMPAKT_CONFORMANCE_BOOTSTRAP=host:port` lets the tests run against another broker, such as Apache
Kafka, to see whether a test says what Kafka does.
"""

from __future__ import annotations

import gc
import os
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.spark.jars import JarsUnavailable
from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import CLIENT_NAMES, Client, client
from tests.harness.java_client import RELEASES, JavaClient
from tests.harness.member_program import MEMBER_PROGRAMS, ProgramUnavailable
from tests.harness.secured_listeners import SecuredListeners, secured_broker

FOREIGN_BROKER = os.environ.get("KOMPAKT_CONFORMANCE_BOOTSTRAP")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.conformance)


@pytest.fixture
def clients_collected() -> Iterator[None]:
    """For tests whose clients are refused: libraries then leave sockets open, which is not our fault.

    Without it the collector would find them during another test, and fail that one.
    """
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess | None]:
    """One broker for all tests here that do not need one of their own; None for a foreign one."""
    if FOREIGN_BROKER:
        yield None
        return
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as process:
        yield process


@pytest.fixture(scope="session")
def secured_process(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[BrokerProcess, SecuredListeners]]:
    """One broker for all tests of logins and certificates."""
    folder = tmp_path_factory.mktemp("secured")
    quick = {"ssl.store.check.interval.ms": 200, "group.min.session.timeout.ms": 1_000}
    with secured_broker(folder, quick) as running:
        yield running


@pytest.fixture(scope="session")
def secured(secured_process: tuple[BrokerProcess, SecuredListeners]) -> SecuredListeners:
    """The listeners of that broker."""
    return secured_process[1]


@pytest.fixture(scope="session")
def bootstrap(broker: BrokerProcess | None) -> str:
    return broker.bootstrap_servers if broker else str(FOREIGN_BROKER)


@pytest.fixture(scope="session")
def port(bootstrap: str) -> int:
    return int(bootstrap.rpartition(":")[2])


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """A name that no other test uses, from a word."""
    return lambda word: f"{word}-{uuid.uuid4().hex[:8]}"


def or_skip(name: str) -> Client:
    """The client, or a skip that says what to install."""
    try:
        return client(name)
    except (JarsUnavailable, FileNotFoundError) as missing:
        pytest.skip(str(missing))


def member_or_skip(name: str) -> None:
    """Skip, with what to install, where there can be no members of this client."""
    if name not in MEMBER_PROGRAMS:
        or_skip(name)
        return
    try:
        MEMBER_PROGRAMS[name].command()
    except ProgramUnavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def clients() -> dict[str, Client]:
    """All six, by name."""
    return {name: or_skip(name) for name in CLIENT_NAMES}


@pytest.fixture(scope="session", params=RELEASES)
def java(request: pytest.FixtureRequest) -> JavaClient:
    """The Java client, in each release."""
    found = or_skip(f"java-{request.param}")
    assert isinstance(found, JavaClient)
    return found
