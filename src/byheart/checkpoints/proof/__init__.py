"""Proofs about written checkpoints: config.json and model.safetensors of ten stock architectures.

The checker does not see how a checkpoint was built. It finds the structure in the tensors, encloses every value
for every input (`fields`), and proves by how much the correct token wins (`margins`) in every engine of an error model
(`storage`). What it does not understand is `undecided`, with the place; it never guesses.
"""

from byheart.checkpoints.proof.certificate import MarginCertificate, MarginWitness, TypeResult
from byheart.checkpoints.proof.check import TYPES, certify_checkpoint, certify_classifier, tokenize, verify_folder
from byheart.checkpoints.proof.compare import FolderComparison, compare_checkpoints
from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.storage import ERROR_MODEL

__all__ = [
    "ERROR_MODEL",
    "TYPES",
    "FolderComparison",
    "MarginCertificate",
    "MarginWitness",
    "TypeResult",
    "Undecided",
    "certify_checkpoint",
    "certify_classifier",
    "compare_checkpoints",
    "tokenize",
    "verify_folder",
]
