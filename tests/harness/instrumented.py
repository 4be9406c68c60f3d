"""Replaces one of our modules by an instrumented build.

It imports none of our modules, so it can be used before anything else is imported.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ExtensionFileLoader


def load_instrumented(name: str, path: str) -> None:
    """Load the instrumented build as module `name`, before anything imports it."""
    loader = ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
