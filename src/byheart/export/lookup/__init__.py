"""Tables as lookups: rows that are listed, joined or hashed, each as an ONNX graph that is proved from its file."""
