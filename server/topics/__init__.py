"""Topics and their partitions: create, open, configure, grow, delete."""
