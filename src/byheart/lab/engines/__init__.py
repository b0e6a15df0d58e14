"""Training: a readable engine, fast ones, and their shared parts."""
