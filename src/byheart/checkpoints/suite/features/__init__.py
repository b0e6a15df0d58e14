"""One file per engine feature: the fixture that tests it, with exact expected answers.

    recital   a text, greedily: prefill, decoding, batches, logits
    lora      a base checkpoint and PEFT adapters
    draft     a target and a draft model that differ at chosen places
    chat      conversations in chat templates, with tools
    ranked    known second and third tokens: grammars, log-probabilities, beams, samplers
    serving   prompts that share prefixes, of unequal lengths, for batching and load

Every file registers its kind (`byheart.checkpoints.suite.kinds`) and writes `expected.json` with a list `cases`. A case
names the adapter's method that it calls (`do`) and the values that the method must return.
"""
