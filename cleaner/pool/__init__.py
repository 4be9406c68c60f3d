"""Which log is cleaned next, on which thread, with which outcome."""
