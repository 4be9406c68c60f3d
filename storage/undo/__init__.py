"""What cleaning passes have replaced, kept for a while so that they can be undone."""
