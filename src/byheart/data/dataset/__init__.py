"""Validated, exact data: rows, labels, contexts."""
