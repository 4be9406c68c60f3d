"""Counts of the records that a segment or a log really has."""
