"""Stock Hugging Face checkpoints, read back: `read_checkpoint` (config and tensors), `read_decoder` (what they compute)."""

from byheart.export.stock.architectures import ARCHITECTURES, read_decoder
from byheart.export.stock.decoder import Decoder
from byheart.export.stock.folder import Checkpoint, read_checkpoint

__all__ = ["ARCHITECTURES", "Checkpoint", "Decoder", "read_checkpoint", "read_decoder"]
