"""Self-contained pages: the report about a memory, and the live page that builds and evaluates one."""

from byheart.report.live_page import explain
from byheart.report.page import render, write

__all__ = ["explain", "render", "write"]
