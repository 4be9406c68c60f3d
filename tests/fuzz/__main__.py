"""Fuzz one target with coverage as the guide: `python -m tests.fuzz TARGET FOLDER [OPTION ...]`.

It needs `pip install atheris`; the options are libFuzzer's. Inputs that reach new code are written to
FOLDER, an input that fails to the current folder. `python -m tests.fuzz.minimize TARGET FOLDER` takes
the best ones to the corpus, which the tests replay.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import atheris

CORPUS = Path(__file__).parent / "corpus"
INSTRUMENTED = [
    "server.security", "server.config.listeners", "server.handlers", "server.replication",
    "server.client", "protocol.wire", "joserfc",
]  # fmt: skip


def main(name: str, options: Iterable[str]) -> None:
    """Fuzz until the options of libFuzzer say otherwise."""
    # Instrumented as they are imported.
    with atheris.instrument_imports(include=INSTRUMENTED, enable_loader_override=False):
        from tests.fuzz.targets import TARGETS
    atheris.Setup([sys.argv[0], *options, str(CORPUS / name)], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
