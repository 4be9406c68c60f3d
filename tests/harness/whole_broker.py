"""Importing this imports what a broker imports while it starts and serves, also what it imports late."""

from __future__ import annotations

import importlib
import pkgutil

import server.handlers

for module in pkgutil.walk_packages(server.handlers.__path__, "server.handlers."):
    importlib.import_module(module.name)
for name in (
    "cli.serve",
    "server.broker_cleaner",
    "server.durability.space_watch",
    "server.http",
    "server.links",
    "server.run",
    "server.security.tls_listeners",
    "server.standby.peers",
    "storage.files.fallocate",
):
    importlib.import_module(name)
