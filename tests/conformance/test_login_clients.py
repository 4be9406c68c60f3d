"""Every client connects by every mechanism that it has, and says what Apache Kafka lets it say.

`logins/errors.txt` was written by `tests.harness.login_errors` with Kafka 4.3.1.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.spark.jars import JarsUnavailable
from tests.harness.broker_process import BrokerProcess
from tests.harness.client_access import LOGIN_MODULES, Access, Accesses
from tests.harness.login_clients import (
    IN_PYTHON,
    NAMES,
    OK,
    JavaLogins,
    Order,
    RoundTrip,
    program,
)
from tests.harness.login_errors import WRONG, errors_of, has_way, read
from tests.harness.member_program import LOGIN_PROGRAMS, ProgramUnavailable
from tests.harness.secured_listeners import (
    MECHANISMS,
    PASSWORD,
    REAUTH_MS,
    SecuredListeners,
    logins_again,
)

pytestmark = [
    pytest.mark.usefixtures("clients_collected"),
    # Refused clients of Python leave sockets open, and say so at any later time.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

KAFKA = read((Path(__file__).parent / "logins" / "errors.txt").read_text("utf-8"))
PRECISE_ALERTS = {
    "an expired certificate": {
        "0A000416": "0A000415",
        "certificate unknown: SSL alert number 46": "certificate expired: SSL alert number 45",
        "sslv3 alert certificate unknown": "sslv3 alert certificate expired",
        "alert number 46": "alert number 45",
        "certificate_unknown": "certificate_expired",
        "unknown certificate": "expired certificate",
    },
    "no certificate": {
        "0A000412": "0A00045C",
        "ssl/tls alert bad": "tlsv13 alert bad",
        "sslv3 alert bad": "tlsv13 alert bad",
        "bad certificate": "certificate required",
        "alert number 42": "alert number 116",
        "bad_certificate": "certificate_required",
    },
}
"""Where our alerts say what is wrong with a client's certificate, and Java's do not."""
NO_TLS, TOKEN = "no TLS, but the broker has it", "a token of another issuer"
OURS = {
    # Kafka answers with a TLS alert, which clients without TLS read as the size of an answer.
    (
        "java",
        NO_TLS,
    ): "ExecutionException: org.apache.kafka.common.errors.TimeoutException: Timed out"
    " waiting for a node assignment. Call: listNodes; TimeoutException: Timed out waiting for a node"
    " assignment. Call: listNodes",
    ("franz-go", NO_TLS): "<end>",
    ("kafka-python", NO_TLS): "KafkaTimeoutError; <end>",
    # These two take the broker's error for a success, and send Metadata instead of a confirmation.
    # Kafka answers that with an error, which they misread; here the connection ends.
    ("aiokafka", TOKEN): 'KafkaConnectionError; Unable to request metadata from "<address>":'
    " KafkaConnectionError: Connection at <address> closed",
    ("kafkajs", TOKEN): "KafkaJSConnectionClosedError: Closed connection",
}
"""The other texts that differ, on purpose."""
PAIRS = [
    (name, mechanism)
    for name in NAMES
    for mechanism in (*MECHANISMS, "MUTUAL")
    if has_way(name, mechanism)
]


@pytest.fixture(scope="session")
def java() -> Iterator[JavaLogins]:
    try:
        started = JavaLogins()
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    with started:
        yield started


@pytest.fixture
def client(request: pytest.FixtureRequest, name: str) -> RoundTrip:
    """The client with this name, or a skip that says what to install."""
    if name == "java":
        found: RoundTrip = request.getfixturevalue("java")
        return found
    if name == "kcat" and shutil.which("kcat") is None:
        pytest.skip("install kcat")
    if name in IN_PYTHON:
        return IN_PYTHON[name]
    try:
        return program(name)
    except ProgramUnavailable as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize(("name", "mechanism"), PAIRS)
def test_a_client_writes_and_reads(
    client: RoundTrip, secured: SecuredListeners, name: str, mechanism: str
) -> None:
    access = Accesses(secured).right(mechanism)

    assert client(access, Order(topic=f"{name}-{mechanism}")) == OK


@pytest.mark.parametrize("name", NAMES)
def test_a_refused_client_says_what_it_says_with_kafka(
    client: RoundTrip, secured: SecuredListeners, name: str
) -> None:
    expected = {
        mistake: OURS.get((name, mistake), with_precise_alert(mistake, text))
        for (of, mistake), text in KAFKA.items()
        if of == name
    }
    assert errors_of(name, client, Accesses(secured).wrong()) == expected


def test_no_password_is_in_the_log(
    secured_process: tuple[BrokerProcess, SecuredListeners],
) -> None:
    process, secured = secured_process
    accesses = Accesses(secured)
    wrongs = {name: accesses.wrong()[f"a wrong password by {name}"] for name in LOGIN_MODULES}
    for name, wrong in wrongs.items():
        assert IN_PYTHON["confluent-kafka"](wrong, WRONG) != OK
        assert IN_PYTHON["confluent-kafka"](accesses.right(name), Order(topic="logged")) == OK

    log = process.log_path.read_text()
    assert "login refused" in log
    assert PASSWORD not in log
    assert not [each for each in wrongs.values() if each.password in log]


def with_precise_alert(mistake: str, text: str) -> str:
    for kafkas, ours in PRECISE_ALERTS.get(mistake, {}).items():
        text = text.replace(kafkas, ours)
    return text


# Sessions and certificates that end under load.


@pytest.fixture
def steady(java: JavaLogins) -> dict[str, RoundTrip]:
    """The clients that can work for a while."""
    try:
        programs = {name: program(name) for name in LOGIN_PROGRAMS}
    except ProgramUnavailable as missing:
        pytest.skip(str(missing))
    steady = {name: client for name, client in IN_PYTHON.items() if name != "kcat"}
    return {**steady, **programs, "java": java}


def test_clients_log_in_again_while_they_write_and_read(
    steady: dict[str, RoundTrip], secured_process: tuple[BrokerProcess, SecuredListeners]
) -> None:
    """KIP-368: they work for three sessions. aiokafka does not log in again, it connects again."""
    process, secured = secured_process
    before = logins_again(process)
    order = Order(topic="again", records=3 * REAUTH_MS // 100, pause_ms=100)
    access = Accesses(secured).right("SCRAM-SHA-512", "SHORT")

    assert set(all_at_once(steady, access, order).values()) == {OK}
    assert logins_again(process) >= before + 2 * len(AGAIN)


AGAIN = ("confluent-kafka", "kafkajs", "franz-go", "java")
"""The clients that log in again on the same connection, twice in three sessions."""


def test_a_certificate_changes_while_clients_write_and_read(
    steady: dict[str, RoundTrip], secured: SecuredListeners
) -> None:
    order = Order(topic="rotated", records=50, pause_ms=100)
    access = Accesses(secured).right("SCRAM-SHA-256")
    with ThreadPoolExecutor() as pool:
        running = pool.submit(all_at_once, steady, access, order)
        secured.change_certificate("clients")
        assert not running.done(), "the change came too late to be noticed"

        assert set(running.result().values()) == {OK}


def all_at_once(clients: dict[str, RoundTrip], access: Access, order: Order) -> dict[str, str]:
    """Returns the result of each client; all of them work at the same time."""
    with ThreadPoolExecutor(len(clients)) as pool:
        running = {
            name: pool.submit(client, access, replace(order, topic=f"{order.topic}-{name}"))
            for name, client in clients.items()
        }
        return {name: each.result() for name, each in running.items()}
