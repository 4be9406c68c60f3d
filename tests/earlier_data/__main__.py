"""`python -m tests.earlier_data NAME [--checkout DIR]`: keep the data directory of a release for tests.

Starts the broker of the checkout (this one unless told otherwise), writes the scene, kills the broker
in the middle of a transaction, and asks it after a restart what clients see. Writes beside this file

    NAME.tar.xz    the data directory as the kill left it
    NAME.json      what clients saw of it

Run it when a release is made, and whenever a format changes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.earlier_data.account import account_of, records_found
from tests.earlier_data.scene import PROPERTIES, write_scene
from tests.harness.broker_process import CHECKOUT, BrokerProcess

HERE = Path(__file__).parent


class EarlierBroker(BrokerProcess):
    """The broker of another checkout, which has its own environment and may have an older command."""

    __slots__ = ("checkout",)

    def __init__(self, folder: Path, checkout: Path) -> None:
        super().__init__(folder, PROPERTIES)
        self.checkout = checkout

    def command(self) -> list[str]:
        # Before there was a `cli` package, the command stood in `server`.
        package = "cli" if (self.checkout / "cli").is_dir() else "server"
        path = f"import sys; sys.path.insert(0, {str(self.checkout)!r}); import runpy; "
        run = f"sys.argv[0] = 'kompakt'; runpy.run_module({package!r}, run_name='__main__')"
        python = str(self.checkout / ".venv" / "bin" / "python")
        return [python, "-P", "-c", path + run, *super().command()[3:]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.earlier_data")
    parser.add_argument("name", help="name of the release, for the two files")
    parser.add_argument("--checkout", type=Path, default=CHECKOUT, help="checkout of that release")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        EarlierBroker(Path(folder), arguments.checkout.resolve()) as broker,
    ):
        pending = write_scene(
            broker.bootstrap_servers, lambda topic: records_found(broker.bootstrap_servers, topic)
        )
        broker.kill()
        pending.purge()
        killed = shutil.copytree(broker.data_dir, Path(folder) / "killed")
        broker.overrides["log.cleaner.enable"] = False
        broker.start()
        account = account_of(broker.bootstrap_servers)
        broker.kill()
        with tarfile.open(HERE / f"{arguments.name}.tar.xz", "w:xz") as archive:
            archive.add(killed, "data")
    found = json.dumps(account, indent=None, sort_keys=True, separators=(",", ":"))
    (HERE / f"{arguments.name}.json").write_text(found.replace('],["', '],\n["') + "\n")
    return 0


sys.exit(main())
