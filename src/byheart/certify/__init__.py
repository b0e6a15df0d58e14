"""The checker."""

from byheart.certify.certificate import Certificate, Verdict, Witness
from byheart.certify.checker import certify

__all__ = ["Certificate", "Verdict", "Witness", "certify"]
