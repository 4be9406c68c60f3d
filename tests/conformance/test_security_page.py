"""docs/security.md, done from its first line to its last as an operator would."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from server.config.sources import parse_properties
from tests.harness.broker_process import CHECKOUT, BrokerProcess
from tests.harness.certificates import Certificates
from tests.harness.typed_commands import TypedCommands, page_blocks

PAGE = CHECKOUT / "docs" / "security.md"


def test_the_page_makes_a_broker_with_tls_users_acls_and_quotas(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    try:
        for line in "".join(page_blocks(PAGE, "console")).splitlines():
            operator.do(line)
        assert operator.printed == "k:v\n"
        alice = ("--user", "alice", "--tls-ca", str(operator.ca))
        assert "uthorization failed" in operator.typed.refused("topics", "create", "more", *alice)
        assert "--command-config" in operator.typed.refused("topics", "list", code=3)
    finally:
        assert operator.broker.stop() == 0
    audit = (operator.broker.data_dir / "audit.log").read_text()
    assert '"event":"denied","principal":"User:alice"' in audit
    assert '"event":"changed","principal":"User:admin"' in audit
    assert "secret" not in audit + operator.broker.log_path.read_text()


class Operator:
    """Types the page's commands, in a folder with the files that it names."""

    def __init__(self, folder: Path) -> None:
        certificates = Certificates(folder)
        self.ca = certificates.authority_file
        (file,) = page_blocks(PAGE, "properties")
        properties = parse_properties(file)
        self.broker = BrokerProcess(folder)
        port = self.broker.port
        assert properties.pop("log.dirs") == "data"
        properties["listeners"] = properties["listeners"].replace(":9094", f":{port}")
        properties["ssl.keystore.location"] = str(certificates.broker("broker.pem"))
        self.broker.overrides = dict(properties)
        self.typed = TypedCommands(self.broker)
        self.paths = {"ca.pem": str(self.ca), "data": str(self.broker.data_dir)}
        self.printed = ""

    def do(self, line: str) -> None:
        if line == "# start the broker":
            self.broker.start()
            return
        command = line.removeprefix("$ ")
        assert command != line, line
        if match := re.fullmatch(r"export (\w+)=(.+)", command):
            value = match[2].replace(":9094", f":{self.broker.port}")
            self.typed.environment[match[1]] = value
            return
        given = ""
        if match := re.fullmatch(r"echo (\S+) \| (.+)", command):
            given, command = f"{match[1]}\n", match[2]
        program, *arguments = shlex.split(command)
        assert program == "kompakt"
        typed = [self.paths.get(argument, argument) for argument in arguments]
        self.printed = self.typed.told(*typed, given=given)
