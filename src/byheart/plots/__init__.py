"""Pictures. Every function returns a matplotlib Figure; matplotlib is imported where it is used (extra `plot`)."""
