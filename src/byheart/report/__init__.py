"""The report: one self-contained page about a memory."""

from byheart.report.page import render, write

__all__ = ["render", "write"]
