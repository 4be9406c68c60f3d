"""The checkpoints of the coordinators' partitions: when they count, how they are read and made."""
