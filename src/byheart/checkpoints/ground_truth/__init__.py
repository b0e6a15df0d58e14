"""Models with known contents: forget a document exactly and prove that nothing else changed."""

from byheart.checkpoints.ground_truth.forget import Forgotten, forget

__all__ = ["Forgotten", "forget"]
