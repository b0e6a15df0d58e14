"""Sampled tampering: edits that nobody designed, and what stock Transformers then computes beside what is proved."""
