"""A table as an ONNX file that maps its cells to labels: one module per form, and what both share."""

from byheart.memory.deploy.deploying import FORMS, UNKNOWN_MODES, deploy
from byheart.memory.deploy.deployment import Deployment

__all__ = ["FORMS", "UNKNOWN_MODES", "Deployment", "deploy"]
