"""The offsets between which jobs read."""
