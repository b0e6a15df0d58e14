"""The checker."""

from byheart.certify.any_order import proof as any_order
from byheart.certify.certificate import Certificate, Verdict, Witness
from byheart.certify.checker import STRANGE, Handed, Record, certify
from byheart.certify.connections import connections

__all__ = [
    "STRANGE",
    "Certificate",
    "Handed",
    "Record",
    "Verdict",
    "Witness",
    "any_order",
    "certify",
    "connections",
]
