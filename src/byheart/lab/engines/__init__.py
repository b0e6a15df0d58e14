"""Training: a readable engine, fast ones, and what they share."""
