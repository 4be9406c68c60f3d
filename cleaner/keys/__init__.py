"""What can be said of the keys of a log: counted, estimated, compared. Pure."""
