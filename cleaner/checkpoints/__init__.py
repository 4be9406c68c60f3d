"""The coordinators' checkpoints: when they count, how they are read and made."""
