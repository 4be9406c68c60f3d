"""Segment files as a Spark source."""
