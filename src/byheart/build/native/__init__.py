"""The label memory that floats evaluate exactly: hash chains, bucket selector, scan, readout.

Every value is an integer times a power of two, and every sum of absolute terms stays below 2^53 (float64) or 2^24
(float32), so no evaluation order ever rounds. `docs/native.md` has the derivation.
"""

from byheart.build.native import construction as construction
