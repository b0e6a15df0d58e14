"""KS25, Appendix B: a number for every sequence, from sums over its tokens."""
