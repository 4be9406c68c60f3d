"""Code that the handlers of several APIs share, and parts of large handlers."""
