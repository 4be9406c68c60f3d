"""Groups: who is in one, what it has committed, and the topic that keeps both."""
