"""Benchmarks: each figure is compared with a probe of the machine's own limit in the same run."""
