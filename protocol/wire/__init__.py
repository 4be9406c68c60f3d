"""Frames, headers, schemas, codecs."""
