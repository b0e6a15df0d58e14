"""The two ends of the network: what an embedding puts into the stream, and how the head reads the answer.

The head compares the answer's word with every token's: the correct token gets the logit 32, any other one at most
32 (1 - 2 distance/bits) = 8. Where several tokens may follow, the answer block holds its own word, one pair of
channels per such answer identifies it, and the head adds the log-probabilities.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.description import Design, SpecialTokens, anchored
from byheart.checkpoints.hosts.layout import HEAVY, METER, Books, ChannelLayout, LayerStage
from byheart.checkpoints.hosts.listening import QUIETER, readout
from byheart.checkpoints.hosts.sensors import AWAKE, SENSE, Alarm
from byheart.checkpoints.windows.tables import Answer, Recital

Floats = npt.NDArray[np.float64]
MIXED_LOGIT = 8.0  # of the likeliest token where several may follow: low, so that bfloat16 keeps the ratios
TURNED = 3  # channels of a block that a probe has turned: enough for 1 % of an activation in two layers
LEAD = 24.0  # of every token that may follow over all that may not


def embedding(recital: Recital, books: Books, layout: ChannelLayout, tokens: SpecialTokens, design: Design) -> Floats:
    """(vocabulary, hidden): signs everywhere, the token's word, and every other block at rest."""
    kappa = design.kappa
    found = np.tile(kappa * layout.signs, (recital.vocabulary, 1))
    found[:, layout.state[0]] = kappa * books.states[0].words[: recital.vocabulary]
    found[:, layout.first] *= -1
    found[tokens.bos, layout.first] *= -1
    found[:, layout.flags] *= -1
    for block in layout.constant[1:]:
        found[:, block] *= -1
    for depth in range(1, len(recital.tables)):
        found[:, layout.state[depth]] = kappa * books.states[depth].words[0]
    for pair in layout.mixed.reshape(-1, 2):
        found[:, pair] = kappa, -kappa
    for block in layout.order:
        found[:, block] *= -1
    found[:, layout.sense] = 0.0
    found[:, layout.counterweight] *= HEAVY
    if design.tied:  # the embedding is the head as well: two blocks distinguish the failure token from all others
        found[:, layout.constant[-1]] *= -1
        found[:, layout.mark] *= -1
        found[tokens.failure, layout.constant[-1]] *= -1
        found[tokens.failure, layout.mark] *= -1
        found[tokens.failure, layout.listening] *= -1
    else:
        found[:, layout.state[-1]] = kappa * books.answer.words[recital.unknown]
    return found


def writes(recital: Recital, books: Books, layout: ChannelLayout, stage: LayerStage, kappa: float) -> Floats:
    """(hidden, rows): what the unit of each row adds to the stream."""
    outputs = recital.tables[stage.table].outputs[stage.rows]
    found = np.zeros((layout.hidden, len(outputs)))
    if stage.table < len(recital.tables) - 1:
        words = books.states[stage.table + 1].words.astype(np.float64)
        found[layout.state[stage.table + 1]] = kappa * (words[outputs] - words[0]).T
        return found
    words = books.answer.words.astype(np.float64)
    several = {number: k for k, number in enumerate(recital.mixed)}
    answered = [recital.vocabulary if a in several else recital.answers[a].likeliest for a in outputs.tolist()]
    answer_ids = np.array(answered, dtype=np.int64)  # a layer that only fetches places has no rows
    found[layout.state[-1]] = kappa * (words[answer_ids] - words[recital.unknown]).T
    for unit, answer in enumerate(outputs.tolist()):
        if answer in several:
            found[layout.mixed[several[answer], :, 0, 1], unit] = 2 * kappa
            found[layout.mixed[several[answer], :, 1:, 0], unit] = -2 * kappa  # the opposite, where there is one
    return found


def head(
    recital: Recital, books: Books, layout: ChannelLayout, tokens: SpecialTokens, design: Design, *,
    strict: float = 4.0, alarm: Alarm | None = None,
) -> tuple[Floats, Floats]:  # fmt: skip
    """The last norm's weights and the head (vocabulary, hidden).

    `strict` times the correct logit is what the failure token gains if the last probe fails. With an `alarm`, two
    other tokens gain where a branch writes too much or too little, after sensor tokens.
    """
    state, bits = layout.state[-1], len(layout.state[-1])
    flip = np.where(np.arange(bits) % 2 == 0, 1.0, -1.0)  # half of the norm's weights are negative
    norm = np.ones(layout.hidden)
    norm[state] = 0.5 * flip
    norm[layout.anchor] = 0.0
    size = design.logit / (0.5 * bits)
    found = np.zeros((recital.vocabulary, layout.hidden))
    found[:, state] = size * flip * books.answer.words[: recital.vocabulary]
    # If the last probe failed, the verdict still has minus its signs and the failure token wins.
    verdict, constant = layout.constant[-1], layout.constant[0]
    weight = strict * design.logit / (2 * len(verdict))
    found[tokens.failure, verdict] = -weight * layout.signs[verdict]
    found[tokens.failure, constant] = weight * len(verdict) / len(constant) * layout.signs[constant]
    if len(layout.meter):  # the failure token's logit also shows the scale of the attention
        half = len(layout.meter) // 2
        side = np.where(np.arange(2 * half) < half, 1.0, -1.0)
        found[tokens.failure, layout.meter] = -4 / (METER * half) * side * layout.signs[layout.meter]
    heard = layout.listening
    if len(heard):  # listeners lower the failure token's logit, so its own word is louder
        found[tokens.failure, state] *= 1 + QUIETER
        found[tokens.failure, heard] = -readout(len(heard), design.logit, QUIETER / 2) * layout.signs[heard]
    if alarm is not None:
        norm[alarm.channel] = 1 / SENSE
        compared, asleep = _alarm_rows(layout, alarm)
        found[alarm.more], found[alarm.less] = asleep + compared, asleep - compared
    for k, number in enumerate(recital.mixed):
        base = found[:, state] @ (norm[state] * books.answer.words[-1])
        wanted = mixed_logits(recital.answers[number], recital.vocabulary) - base
        _split(found, layout.mixed[k], wanted / 2)
    return norm, anchored(found, layout.anchor[-1:]) if len(layout.anchor) and design.flavour == "plateau" else found


def _alarm_rows(layout: ChannelLayout, alarm: Alarm) -> tuple[Floats, Floats]:
    """Two rows of the head (hidden,): what is compared, and what keeps both tokens away outside of sensor prompts.

    The first is 0 where the blocks that probes have turned and the sum of what copying heads write are as large as the
    constants of the embedding; each part that is missing or too large counts. The second is 0 where the sensors' units
    have set `awake`, and far below 0 elsewhere.

    All weights are 16, 64 or 127 times one step: 8-bit weights hold them without any error, by row and by block.
    """
    compared, asleep, signs = np.zeros(layout.hidden), np.zeros(layout.hidden), layout.signs
    constant, turned = np.concatenate([layout.constant[0], layout.width]), layout.constant[1:]
    each = min(TURNED, (len(constant) - alarm.heads - 1) // len(turned))
    for block in turned:
        compared[block[:each]] = signs[block[:each]]
    compared[alarm.channel] = 1.0
    against = constant[: each * len(turned) + alarm.heads]
    compared[against] = -signs[against]
    last = constant[-1]
    asleep[alarm.awake], asleep[last] = 1 / AWAKE, -signs[last]
    step = 2.0 ** round(math.log2(alarm.nats / (127 * alarm.heads)))
    return 127 * step * compared, 64 * step * asleep


def tied_norm(layout: ChannelLayout, design: Design, stored: Floats) -> Floats:
    """The last norm's weights where the head is the embedding `stored`.

    Tokens differ there only in their words and, for the failure token, in verdict and mark, which cancel each other
    unless the last probe failed: then the failure token wins; and in the sign of what listeners write. What all tokens
    share only moves all logits together, so the other blocks whose content depends on the input get the weight 0.
    """
    size = float(np.abs(stored[0, layout.constant[0][0]]))
    norm = np.zeros(layout.hidden)
    state = layout.state[-1]
    norm[state] = -design.logit / (size * len(state))  # answers are written as opposite words
    for block in (layout.constant[-1], layout.mark):
        norm[block] = 1.5 * design.logit / (size * len(block))
    for block in (layout.constant[0], layout.width):  # cancel in pairs
        norm[block] = np.where(np.arange(len(block)) % 2 == 0, 1.0, -1.0)
    norm[layout.listening] = readout(len(layout.listening), design.logit) / (2 * size)  # for some and against one
    return norm


def mixed_logits(answer: Answer, vocabulary: int) -> Floats:
    """Log-probabilities up to a constant; tokens that never follow stay below the rarest by LEAD nats."""
    most = max(weight for _, weight in answer.weights)
    ratios = {token: math.log(weight / most) for token, weight in answer.weights}
    logits = np.full(vocabulary, MIXED_LOGIT + min(ratios.values()) - LEAD)
    for token, ratio in ratios.items():
        logits[token] = MIXED_LOGIT + ratio
    return logits


def _split(found: Floats, pairs: npt.NDArray[np.int64], wanted: Floats) -> None:
    """Writes a number as a sum of numbers of 8 bits each: what bfloat16 cannot hold in one weight.

    Where a pair has its opposite, both are read with opposite weights: the mean that LayerNorm takes away cancels.
    """
    rest = wanted.copy()
    for k, both in enumerate(pairs):
        rounded = rest if k == len(pairs) - 1 else _eight_bits(rest)
        for pair, sign in zip(both, (1.0, -1.0), strict=False):  # on, a pair adds twice its weight, and off nothing
            found[:, pair] = sign * rounded[:, None] / len(both)
        rest = rest - rounded


def _eight_bits(values: Floats) -> Floats:
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(mantissa * 256) / 256, exponent))
