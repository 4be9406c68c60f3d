"""Topics and their partitions: create, open, grow, delete."""
