"""The checker."""

from byheart.certify.answering import AT_ONCE, EvaluationPlan
from byheart.certify.any_order import proof as any_order
from byheart.certify.certificate import Certificate, Gap, Verdict, Witness
from byheart.certify.checker import FRACTION, UNANSWERABLE, Record, RowSubset, certify
from byheart.certify.contextual import ContextCertificate, ContextWitness, certify_contexts
from byheart.certify.properties import connections

__all__ = [
    "AT_ONCE",
    "FRACTION",
    "UNANSWERABLE",
    "Certificate",
    "ContextCertificate",
    "ContextWitness",
    "EvaluationPlan",
    "Gap",
    "Record",
    "RowSubset",
    "Verdict",
    "Witness",
    "any_order",
    "certify",
    "certify_contexts",
    "connections",
]
