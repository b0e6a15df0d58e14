"""Rigorous enclosures: float balls at the speed of BLAS, arb balls at any precision."""
