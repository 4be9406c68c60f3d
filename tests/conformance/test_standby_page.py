"""docs/standby.md, done from its first line to its last as an operator would."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from pathlib import Path

from server.config.sources import parse_properties
from tests.harness.broker_process import CHECKOUT, BrokerProcess, free_ports
from tests.harness.certificates import Certificates
from tests.harness.standby_process import CURRENT_SECONDS_MAX, digest_in
from tests.harness.typed_commands import TypedCommands, page_blocks

PAGE = CHECKOUT / "docs" / "standby.md"


def test_the_page_makes_a_standby_that_logs_in_over_tls(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    try:
        for line in "".join(page_blocks(PAGE, "console")).splitlines():
            operator.do(line)
        assert "digest" in operator.printed[-2]
        assert "no standby" not in operator.printed[-1]
        assert operator.without_the_right() == "waiting"
    finally:
        operator.end()
    copy, own = tmp_path / "copy" / "metadata", operator.broker.data_dir / "metadata"
    assert digest_in(copy) == digest_in(own)
    assert copy.stat().st_mode & 0o077 == 0, "it holds verifiers of passwords"


class Operator:
    """Types the page's commands, in a folder with the files that it names."""

    def __init__(self, folder: Path) -> None:
        certificates = Certificates(folder)
        (file,) = page_blocks(PAGE, "properties")
        properties = parse_properties(file)
        self.broker = BrokerProcess(folder)
        internal, endpoint = free_ports(2)
        self.ports = {
            ":9094": f":{self.broker.port}",
            ":9095": f":{internal}",
            ":9646": f":{endpoint}",
            ":9644": f":{self.broker.http_port}",
        }
        assert properties.pop("log.dirs") == "data"
        properties["listeners"] = self._own(properties["listeners"])
        properties["ssl.keystore.location"] = str(certificates.broker("broker.pem"))
        self.broker.overrides = dict(properties)
        self.typed = TypedCommands(self.broker)
        self.paths = {
            "ca.pem": str(certificates.authority_file),
            "data": str(self.broker.data_dir),
            "copy": str(folder / "copy"),
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
            "--data", self.paths["copy"] + "-of-eve", "--http", "", "--user", "eve",
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
        for page, own in self.ports.items():
            text = text.replace(page, own)
        return text

    def _wait_until_current(self) -> None:
        assert self.standby is not None
        deadline = time.monotonic() + CURRENT_SECONDS_MAX
        url = f"http://127.0.0.1{self.ports[':9646']}"
        while self.typed.run("standby", "status", "--url", url).returncode:
            assert self.standby.poll() is None, "it ended"
            assert time.monotonic() < deadline
