from __future__ import annotations

# The first import of kafka-python warns; this one catches that.
import tests.harness.clients  # noqa: F401
