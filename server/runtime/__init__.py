"""The event loop and its threads: turns, executors, tasks, clocks, signals."""
