"""Pure decisions: which record stays, which log goes first, which segments change."""
