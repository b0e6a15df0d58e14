"""Recitals as stock Hugging Face checkpoints: one file per architecture on one shared description.

What the written folder holds:

    config.json             the stock configuration; `rope_theta` also at the top level
    model.safetensors       every tensor under its stock name, in the requested type (bfloat16, float16 or float32)
    generation_config.json  greedy decoding and the ids of the special tokens
    tokenizer.json          and tokenizer_config.json: loaded by AutoTokenizer without remote code
    README.md               the model card: what the network stores and how that was proved
    recital.json            what the network computes, for readers and checkers (below)
    ground-truth.jsonl      flavour `units` only: layer, unit, document and position of every memorized window, then
                            every document with its role: member, corrupted (with its edits), held out

`recital.json` is one JSON object:

    format, version         "byheart recital", 1
    architecture, flavour, dtype
    recital                 the symbolic function, as `byheart.checkpoints.windows.tables.Recital.to_json` writes it
    tokens                  {"bos", "eos", "pad", "failure", "unknown"}: token ids; `unknown` is the answer to windows
                            that are not memorized (either the end or the visible failure token)
    documents               [{"name", "ids", "weight"}]: token ids with BOS in front and EOS at the end; corrupted
                            copies also have "edits": {"of": name, "changes": [[position, token before, now]]}
    absent                  the same for documents that are not memorized, with "why": held out, corrupted, forgotten
    fingerprint             SHA-256 of the documents
    reach                   positions for which the attention scores were designed (max_position_embeddings)
    sensors                 [[token, token, channel]]: pairs of tokens of no document; after three of them the next one
                            is a bit of the position, which the channel of the stream holds; with the channel -1 the
                            two tokens of the alarm (sensors.py)
    logits                  {"right": 32.0, "gap": 24.0, "mixed": 8.0}: the designed logit of the one correct token, its
                            designed margin, and the logit of the likeliest token where several may follow

The invariants that a checker may look for (see docs/recital.md):

1. Every residual channel is +kappa or -kappa at every position after every sublayer, whatever the input; only the two
   channels of the scale probe deviate, by at most kappa/4 and in opposite directions, and those of sensors, which are
   zeros beside channels of twice the size.
2. Queries and keys are constant vectors (the key of the scale probe's head also sees whether a token is BOS), so a
   head's score is a function of the distance; softmax is one-hot for every head but the scale probe's.
3. Values are linear in blocks of channels that hold code words; the output matrix overwrites a slot: it adds
   kappa (bit - what the slot held before).
4. A unit of the MLP compares slots with code words: for its own window x = total, for any other window of symbols
   x <= total - 2 distance; at most one window unit of a layer fires. It adds kappa (new code - code of unknown).
5. The scale probe counts BOS: its guarantee is for sequences in which BOS is at the first place or absent.
"""
