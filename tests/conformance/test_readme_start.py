"""The first commands of README.md, as a newcomer types them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.harness.broker_process import CHECKOUT, BrokerProcess


def typed() -> list[str]:
    """The commands of the section "Start", but for the one that starts the broker."""
    section = (CHECKOUT / "README.md").read_text().split("## Start\n")[1].split("\n## ")[0]
    first, *rest = re.findall(r"^\$ (.+)$", section, re.MULTILINE)
    assert first == "make run"
    return rest


def test_the_first_commands_of_the_readme_show_a_topic_compacted(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        environment = {
            **os.environ,
            "KOMPAKT_URL": f"http://127.0.0.1:{broker.http_port}",
            "KOMPAKT_BOOTSTRAP_SERVER": broker.bootstrap_servers,
        }
        printed = ""
        for line in typed():
            command = line.replace(".venv/bin/kompakt", f"{sys.executable} -m server")
            command = command.replace("127.0.0.1:9092", broker.bootstrap_servers)
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", command],
                cwd=CHECKOUT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, (line, done)
            printed = done.stdout

    assert printed == "bob:1\nalice:2\n"
