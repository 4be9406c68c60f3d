"""Programs in other languages: kafkajs on Node, franz-go and sarama in Go.

Each program is a folder of `tests/conformance/` with pinned dependencies. A copy of it is built once
into the cache folder, one for each version of its sources.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.spark.jars import cache_folder
from tests.harness.client_record import ConsumedRecord
from tests.harness.java_program import put_in_place

CONFORMANCE = Path(__file__).resolve().parents[1] / "conformance"


class ProgramUnavailable(Exception):
    """The program is unavailable; the message says what to install."""


@dataclass(frozen=True)
class MemberProgram:
    """How a program is built in a copy of its folder, and the command that runs it there."""

    folder: str
    needs: tuple[str, ...]
    debian_packages: str
    build: tuple[str, ...]
    run: tuple[str, ...]
    """`{}` stands for the folder of the build."""

    def command(self) -> list[str]:
        """Returns the command without its arguments: bootstrap, group, topic, property=value ...

        Raises ProgramUnavailable.
        """
        folder = self._built()
        return [word.format(folder) for word in self.run]

    def _built(self) -> Path:
        for command in self.needs:
            if shutil.which(command) is None:
                install = f"apt-get install {self.debian_packages}"
                raise ProgramUnavailable(f"`{command}` is missing: install it with `{install}`.")
        sources = CONFORMANCE / self.folder
        target = cache_folder() / self.folder / digest(sources)
        if not target.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
                staged = Path(scratch) / "program"
                shutil.copytree(sources, staged)
                self._build_in(staged)
                put_in_place(staged, target)
        return target

    def _build_in(self, folder: Path) -> None:
        done = subprocess.run(self.build, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ProgramUnavailable(f"`{' '.join(self.build)}` failed: {done.stderr[-500:]}")


MEMBER_PROGRAMS = {
    "kafkajs": MemberProgram(
        folder="node",
        needs=("node", "npm"),
        debian_packages="nodejs npm",
        build=("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"),
        run=("node", "{}/member.js"),
    ),
    "franz-go": MemberProgram(
        folder="go",
        needs=("go",),
        debian_packages="golang-go",
        build=("go", "build", "-buildvcs=false", "-o", "member", "."),
        run=("{}/member",),
    ),
}

QUICK_TRANSACTIONS = MemberProgram(
    folder="go_transactions",
    needs=("go",),
    debian_packages="golang-go",
    build=("go", "build", "-buildvcs=false", "-o", "transactions", "."),
    run=("{}/transactions",),
)
"""Not a member, but a producer for `test_quick_ends.py`."""

_GO_READERS = MemberProgram(
    folder="go_readers",
    needs=("go",),
    debian_packages="golang-go",
    build=("go", "build", "-buildvcs=false", "-o", "readers", "."),
    run=(),
)
READER_PROGRAMS = {
    "kafkajs": replace(MEMBER_PROGRAMS["kafkajs"], run=("node", "{}/reader.js")),
    "franz-go": replace(_GO_READERS, run=("{}/readers", "franz-go")),
    "sarama": replace(_GO_READERS, run=("{}/readers", "sarama")),
}
"""Not members of tests' groups, but readers of whole topics."""

LOGIN_PROGRAMS = {
    "kafkajs": replace(MEMBER_PROGRAMS["kafkajs"], run=("node", "{}/login.js")),
    "franz-go": MemberProgram(
        folder="go_login",
        needs=("go",),
        debian_packages="golang-go",
        build=("go", "build", "-buildvcs=false", "-o", "login", "."),
        run=("{}/login",),
    ),
}
"""Not members, but clients that connect in every way, for `login_clients.py`."""


def digest(sources: Path) -> str:
    """Returns a digest of the folder's files."""
    said = hashlib.sha256()
    for path in sorted(path for path in sources.iterdir() if path.is_file()):
        said.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return said.hexdigest()[:12]


def read_to_the_end(reader: str, bootstrap: str, topics: Sequence[str]) -> list[ConsumedRecord]:
    """Returns all records of topics of one partition, as a program of `READER_PROGRAMS` reads them.

    Raises:
        ProgramUnavailable: it cannot be built.
        AssertionError: it does not reach the end of all topics in a minute.
    """
    command = [*READER_PROGRAMS[reader].command(), bootstrap, *topics]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{reader}: {done.stderr[-500:]}"
    words = (line.split(" ") for line in done.stdout.splitlines())
    return [
        (topic, 0, int(offset), bytes.fromhex(key), bytes.fromhex(value))
        for topic, offset, key, value in words
    ]
