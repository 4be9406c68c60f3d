"""Makes a compacted topic say what a table says."""
