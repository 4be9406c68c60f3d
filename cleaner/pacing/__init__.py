"""Budgets, the latency guard, progress, quarantine."""
