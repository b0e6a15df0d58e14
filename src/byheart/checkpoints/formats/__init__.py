"""File formats of stock checkpoints: Hugging Face folders, GGUF, ONNX with a cache."""
