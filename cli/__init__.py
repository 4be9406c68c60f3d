"""The command line: `kompakt`."""
