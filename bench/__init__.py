"""Benchmarks: each figure beside a probe of the machine's own limit in the same run, as a ratio."""
