"""Where Spark finds the source by itself: it looks for `DefaultSource` in modules named pyspark_*.

Every session of an environment imports it, also those that never read segment files: where something is
missing that the source needs, Spark finds none, and nothing else fails.
"""

import contextlib

with contextlib.suppress(ImportError):
    from pipeline.segment_source import SegmentSource as DefaultSource  # noqa: F401
