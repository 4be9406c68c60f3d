"""Where Spark finds the source by itself: it looks for `DefaultSource` in modules named pyspark_*."""

from pipeline.segment_source import SegmentSource as DefaultSource

__all__ = ["DefaultSource"]
