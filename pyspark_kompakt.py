"""Lets Spark find the source of segment files: it looks for `DefaultSource` in modules named pyspark_*.

Every session of an environment imports this module, also sessions that never read segment files: if a
dependency of the source is missing, Spark finds no source, and nothing else fails.
"""

import contextlib

with contextlib.suppress(ImportError):
    from pipeline.source.segment_source import SegmentSource as DefaultSource  # noqa: F401
