"""Importing this imports the modules of all commands, and what Typer imports to parse arguments."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import pkgutil

import cli
from cli.main import main

for module in pkgutil.walk_packages(cli.__path__, "cli."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
with contextlib.redirect_stderr(io.StringIO()):
    main(["dump-log", f"{os.devnull}/missing"])
