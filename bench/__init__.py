"""Benchmarks: every figure stands beside a probe of the machine's own limit, taken in the same run, as a ratio."""
