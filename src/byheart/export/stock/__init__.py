"""Stock Hugging Face checkpoints, read back: files (`read_checkpoint`), and what they compute (`read_decoder`)."""

from byheart.export.stock.architectures import ARCHITECTURES, read_decoder
from byheart.export.stock.decoder import Decoder
from byheart.export.stock.folder import Checkpoint, read_checkpoint

__all__ = ["ARCHITECTURES", "Checkpoint", "Decoder", "read_checkpoint", "read_decoder"]
