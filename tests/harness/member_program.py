"""Members of a group in other languages: kafkajs on Node, franz-go in Go.

Each program is a folder of `tests/conformance/` with pinned dependencies. A copy of it is built once
into the cache folder, one for each version of its sources.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.spark.jars import cache_folder
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
