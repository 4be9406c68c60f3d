"""docs/standby.md, done from its first line to its last as an operator would."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from server.config.sources import parse_properties
from tests.harness.broker_process import CHECKOUT, BrokerProcess, free_ports
from tests.harness.certificates import Certificates
from tests.harness.standby_process import StandbyProcess, digest_in
from tests.harness.typed_commands import TypedCommands

PAGE = CHECKOUT / "docs" / "standby.md"
PAGE_HTTP, PAGE_STANDBY = ":9644", "http://127.0.0.1:9646"


def blocks(language: str) -> Iterator[str]:
    yield from re.findall(
        rf"^```{language}\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )


def test_the_page_makes_a_standby_over_tls_with_a_login_and_an_acl(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    try:
        for line in "".join(blocks("console")).splitlines():
            operator.do(line)
        own, listed = operator.printed[-2:]
        found = json.loads(own)
        assert found["state"] == "current"
        assert found["follower_id"] in listed
        assert found["digest"] in listed
        assert operator.standby is not None
        assert operator.standby.stop() == 0
        assert operator.refused_without_the_acl()
    finally:
        assert operator.broker.stop() == 0
    copy = operator.standby.data_dir / "metadata"
    assert f"{digest_in(copy):032x}" == found["digest"]
    assert copy.stat().st_mode & 0o077 == 0, "it holds verifiers of passwords"
    assert "secret" not in operator.standby.output_path.read_text()


class Operator:
    """Types the page's commands, in a folder with the files that it names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        certificates = Certificates(folder)
        (file,) = blocks("properties")
        properties = parse_properties(file)
        self.broker = BrokerProcess(folder)
        (internal,) = free_ports(1)
        self.ports = {":9094": f":{self.broker.port}", ":9095": f":{internal}"}
        assert properties.pop("log.dirs") == "data"
        properties["listeners"] = self.with_ports(properties["listeners"])
        properties["ssl.keystore.location"] = str(certificates.broker("broker.pem"))
        self.broker.overrides = dict(properties)
        self.typed = TypedCommands(self.broker)
        self.paths = {
            "ca.pem": str(certificates.authority_file), "data": str(self.broker.data_dir)
        }  # fmt: skip
        self.standby: StandbyProcess | None = None
        self.printed: list[str] = []

    def with_ports(self, text: str) -> str:
        for written, real in self.ports.items():
            text = text.replace(written, real)
        return text

    def do(self, line: str) -> None:
        if line == "# start the broker":
            self.broker.start()
            return
        command = line.removeprefix("$ ")
        assert command != line, line
        if match := re.fullmatch(r"export (\w+)=(.+)", command):
            self.typed.environment[match[1]] = self.with_ports(match[2])
            return
        given = ""
        if match := re.fullmatch(r"echo (\S+) \| (.+)", command):
            given, command = f"{match[1]}\n", match[2]
        program, *arguments = shlex.split(command)
        assert program == "kompakt"
        typed = [self.paths.get(argument, self.with_ports(argument)) for argument in arguments]
        if arguments[-1] == "&":
            self.standby = self.started(typed[1:-1])
            self.standby.wait_until(lambda it: it["state"] == "current")
        elif arguments[:2] == ["standby", "status"]:
            self.printed.append(self.typed.told(*self.with_addresses(typed)))
        else:
            self.typed.told(*typed, given=given)

    def started(self, options: list[str], name: str = "standby") -> StandbyProcess:
        assert [options[0], options[2:4]] == ["--of", ["--data", "copy"]]
        standby = StandbyProcess(
            self.folder / name,
            options[1],
            arguments=options[4:],
            environment=self.typed.environment,
        )
        standby.start()
        return standby

    def with_addresses(self, typed: list[str]) -> list[str]:
        """Returns a status command with the addresses of this test."""
        assert self.standby is not None
        if "--of" in typed:
            return [each.replace(PAGE_HTTP, f":{self.broker.http_port}") for each in typed]
        return [*typed, "--url", f"http://{self.standby.address}"]

    def refused_without_the_acl(self) -> bool:
        """Returns whether another user's standby says what it lacks."""
        tls = ["--user", "admin", "--tls-ca", self.paths["ca.pem"]]
        self.typed.environment["KOMPAKT_PASSWORD"] = "admin-secret"
        self.typed.told("users", "add", "alice", "--password-stdin", *tls, given="alice-secret\n")
        self.typed.environment["KOMPAKT_PASSWORD"] = "alice-secret"
        options = ["--of", f"127.0.0.1{self.ports[':9095']}", "--data", "copy"]
        alice = self.started(
            [*options, "--user", "alice", "--tls-ca", self.paths["ca.pem"]], "alice"
        )
        found = alice.wait_until(lambda it: it["state"] == "waiting")
        assert alice.stop() == 0
        return "needs ClusterAction on the cluster" in found["reason"]
