"""Why a log is not being compacted."""
