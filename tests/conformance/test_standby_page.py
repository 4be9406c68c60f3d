"""docs/standby.md, done from its first line to its last as an operator would."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from server.config.sources import parse_properties
from tests.harness.broker_process import CHECKOUT, BrokerProcess, free_ports
from tests.harness.certificates import Certificates
from tests.harness.clients import create_topic
from tests.harness.standby_process import CURRENT_SECONDS_MAX, digest_in
from tests.harness.typed_commands import TypedCommands, page_blocks

PAGE = CHECKOUT / "docs" / "standby.md"


def test_the_page_makes_a_standby_that_logs_in_over_tls(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    try:
        for line in "".join(page_blocks(PAGE, "console")[1:]).splitlines():
            operator.do(line)
        assert "digest" in operator.printed[-2]
        assert "no standby" not in operator.printed[-1]
        assert operator.without_the_right() == "waiting"
    finally:
        operator.end()
    copy, own = tmp_path / "copy" / "standby" / "metadata", operator.broker.data_dir / "metadata"
    assert digest_in(copy) == digest_in(own)
    assert copy.stat().st_mode & 0o077 == 0, "it holds verifiers of passwords"


def test_the_page_fails_over_and_back_in_six_commands(tmp_path: Path) -> None:
    old_http, first, port, http, second = free_ports(5)
    source = BrokerProcess(tmp_path, {"inter.broker.listener.name": "PLAINTEXT"})
    ports = {
        ":9095": f":{source.port}",
        ":9096": f":{port}",
        ":9647": f":{http}",
        ":9648": f":{second}",
    }
    files = {
        "standby.properties": page_blocks(PAGE, "properties")[0],
        "server.properties": (
            f"listeners=PLAINTEXT://{source.bootstrap_servers}\n"
            f"inter.broker.listener.name=PLAINTEXT\nhttp.listener=127.0.0.1:{old_http}\n"
        ),
    }
    paths = {"copy": str(tmp_path / "copy"), "data": str(source.data_dir)}
    for name, text in files.items():
        paths[name] = str(tmp_path / name)
        (tmp_path / name).write_text(replaced(text, ports))
    typed = TypedCommands(source)
    # It would override the listeners of the page's files.
    del typed.environment["KAFKA_LISTENERS"]
    running = list[subprocess.Popen[str]]()

    def do(line: str) -> str:
        program, *arguments = shlex.split(replaced(line.removeprefix("$ "), ports))
        assert program == "kompakt"
        arguments = [paths.get(each, each) for each in arguments]
        if arguments[-1] == "&":
            own = [] if "--http" in arguments else ["--http", f"127.0.0.1:{first}"]
            running.append(typed.started(*arguments[:-1], *own, stdout=subprocess.DEVNULL))
            return ""
        own = [] if "--url" in arguments else ["--url", f"http://127.0.0.1:{first}"]
        if arguments[:2] == ["standby", "status"]:
            wait_until_it_has_everything(lambda: typed.run(*arguments, *own).returncode)
        return typed.told(*arguments, *own)

    follow, status, promote, rejoin, status_back, promote_back = page_blocks(PAGE, "console")[
        0
    ].splitlines()
    source.start()
    create_topic(source.bootstrap_servers, "orders")
    produce_one(source.bootstrap_servers, "first")
    try:
        do(follow)
        assert "1 copying" in do(status)
        assert "with all of its records" in do(promote)
        produce_one(f"127.0.0.1:{port}", "second")
        source.stop()
        do(rejoin)
        assert "1 copying" in do(status_back)
        assert "with all of its records" in do(promote_back)
        assert all_values(source.bootstrap_servers, 2) == ["first", "second"]
    finally:
        for program in running:
            program.terminate()
            assert program.wait(timeout=60) == 0


def replaced(text: str, names: Mapping[str, str]) -> str:
    for page, own in names.items():
        text = text.replace(page, own)
    return text


def wait_until_it_has_everything(exit_code: Callable[[], int]) -> None:
    deadline = time.monotonic() + CURRENT_SECONDS_MAX
    while exit_code():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def produce_one(servers: str, value: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    producer.produce("orders", value, "k")
    assert producer.flush(60) == 0


def all_values(servers: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    found = consumer.consume(count, timeout=60)
    consumer.close()
    return [(each.value() or b"").decode() for each in found]


class Operator:
    """Types the page's commands, in a folder with the files that it names."""

    def __init__(self, folder: Path) -> None:
        certificates = Certificates(folder)
        standbys, file = page_blocks(PAGE, "properties")
        properties = parse_properties(file)
        self.broker = BrokerProcess(folder)
        internal, endpoint, promoted, http = free_ports(4)
        self.ports = {
            ":9094": f":{self.broker.port}",
            ":9095": f":{internal}",
            ":9646": f":{endpoint}",
            ":9644": f":{self.broker.http_port}",
            ":9096": f":{promoted}",
            ":9647": f":{http}",
        }
        (folder / "standby.properties").write_text(self._own(standbys))
        assert properties.pop("log.dirs") == "data"
        properties["listeners"] = self._own(properties["listeners"])
        properties["ssl.keystore.location"] = str(certificates.broker("broker.pem"))
        self.broker.overrides = dict(properties)
        self.typed = TypedCommands(self.broker)
        self.paths = {
            "ca.pem": str(certificates.authority_file),
            "data": str(self.broker.data_dir),
            "copy": str(folder / "copy"),
            "standby.properties": str(folder / "standby.properties"),
        }
        self.standby: subprocess.Popen[str] | None = None
        self.printed: list[str] = []

    def do(self, line: str) -> None:
        if line == "# start the broker":
            self.broker.start()
            return
        command = self._own(line.removeprefix("$ "))
        if match := re.fullmatch(r"export (\w+)=(.+)", command):
            self.typed.environment[match[1]] = match[2]
            return
        given = ""
        if match := re.fullmatch(r"echo (\S+) \| (.+)", command):
            given, command = f"{match[1]}\n", match[2]
        program, *arguments = shlex.split(command)
        assert program == "kompakt"
        typed = [self.paths.get(argument, argument) for argument in arguments]
        if typed[-1] == "&":
            self.standby = self.typed.started(*typed[:-1], stdout=subprocess.DEVNULL)
            self._wait_until_current()
            return
        self.printed.append(self.typed.told(*typed, given=given))

    def without_the_right(self) -> str:
        """Returns the state of a standby whose user may not follow."""
        self.typed.environment["KOMPAKT_PASSWORD"] = "admin-secret"
        ca = ("--user", "admin", "--tls-ca", self.paths["ca.pem"])
        self.typed.told("users", "add", "eve", "--password-stdin", *ca, given="eve-secret\n")
        self.typed.environment["KOMPAKT_PASSWORD"] = "eve-secret"
        program = self.typed.started(
            "standby", "--of", f"127.0.0.1{self.ports[':9095']}",
            "--data", self.paths["copy"] + "-of-eve", "--http", "", "--user", "eve", "--metadata-only",
            "--tls-ca", self.paths["ca.pem"],
            stdout=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert program.stdout is not None
            for line in program.stdout:
                state = line.split()[2].rstrip(":")
                if state != "connecting":
                    assert "ClusterAction" in line
                    return state
            raise AssertionError("it ended")
        finally:
            program.kill()
            program.communicate()

    def end(self) -> None:
        if self.standby is not None:
            self.standby.terminate()
            assert self.standby.wait(timeout=20) == 0
        assert self.broker.stop() == 0

    def _own(self, text: str) -> str:
        """Replace the page's ports."""
        return replaced(text, self.ports)

    def _wait_until_current(self) -> None:
        assert self.standby is not None
        deadline = time.monotonic() + CURRENT_SECONDS_MAX
        url = f"http://127.0.0.1{self.ports[':9646']}"
        while self.typed.run("standby", "status", "--url", url).returncode:
            assert self.standby.poll() is None, "it ended"
            assert time.monotonic() < deadline
