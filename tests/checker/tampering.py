"""Ways to tamper with a memory's file. The checksum is computed again: whoever edits on purpose does that too."""

from __future__ import annotations

import copy
import hashlib
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

Body = dict[str, Any]
Edit = Callable[[Body, random.Random], None]

EDITS: dict[str, Edit] = {}
# What only byheart can find: the second checker derives no guarantee and has no construction.
RECORDS = {
    "claim emptied", "claim raised", "claim properties", "claim theorem", "fingerprint", "construction", "options",
    "byheart's version", "recorded counts", "recorded verdict", "notes",
}  # fmt: skip


def edit(name: str) -> Callable[[Edit], Edit]:
    def register(function: Edit) -> Edit:
        EDITS[name] = function
        return function

    return register


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


def sealed(body: Body, version: int = 3) -> bytes:
    digest = hashlib.sha256(canonical(body)).hexdigest()
    return canonical({"byheart": version, "memory": body, "sha256": digest})


def tampered(data: bytes, name: str, rng: random.Random) -> bytes | None:
    """The file after one edit, sealed again; None where the edit finds nothing to change."""
    document = json.loads(data)
    body = copy.deepcopy(document["memory"])
    EDITS[name](body, rng)
    return None if body == document["memory"] else sealed(body, document["byheart"])


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a JSON value."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects(part)


def matrices(body: Body) -> Iterator[Any]:
    return (
        found for found in objects(body["network"]) if "columns" in found and "rows" in found and any(found["rows"])
    )


def layers(body: Body) -> list[Any]:
    """Those of the network, or of the exact network in a decoder; none for other decoders."""
    return next((found["layers"] for found in objects(body["network"]) if "layers" in found), [])


def cell(body: Body, rng: random.Random) -> list[Any]:
    found = rng.choice(list(matrices(body)))
    return rng.choice(rng.choice([row for row in found["rows"] if row]))


def lists_of_numbers(body: Body) -> list[list[Any]]:
    names = ("bias", "bias1", "bias2", "stream")
    return [found[name] for found in objects(body["network"]) for name in names if found.get(name)]


@edit("weight")
def _weight(body: Body, rng: random.Random) -> None:
    cell(body, rng)[1] = rng.choice([1, 2, -1, 7, "0x1p60", "0x1p-3", "-0x3p-2"])


@edit("weight by one")
def _weight_by_one(body: Body, rng: random.Random) -> None:
    found = cell(body, rng)
    if isinstance(found[1], int) and found[1] != -1:
        found[1] += 1


@edit("weight removed")
def _weight_removed(body: Body, rng: random.Random) -> None:
    found = rng.choice(list(matrices(body)))
    row = rng.choice([row for row in found["rows"] if row])
    row.pop(rng.randrange(len(row)))


@edit("bias")
def _bias(body: Body, rng: random.Random) -> None:
    if vectors := lists_of_numbers(body):
        vector = rng.choice(vectors)
        vector[rng.randrange(len(vector))] = rng.choice([0, 1, -5, 1000, "0x1p-1"])


@edit("layer removed")
def _layer_removed(body: Body, rng: random.Random) -> None:
    if found := layers(body):
        found.pop(rng.randrange(len(found)))
        next(part for part in objects(body["network"]) if "stages" in part)["stages"] = []


@edit("layer doubled")
def _layer_doubled(body: Body, rng: random.Random) -> None:
    if found := layers(body):
        place = rng.randrange(len(found))
        found.insert(place, copy.deepcopy(found[place]))
        next(part for part in objects(body["network"]) if "stages" in part)["stages"] = []


@edit("attention")
def _attention(body: Body, rng: random.Random) -> None:
    for layer in layers(body):
        if layer["layer"] == "attention":
            layer["pattern"] = rng.choice(["full", "causal", "star-in", "star-out"])
            if layer["kind"] != "uniform":
                layer["kind"] = rng.choice(["softmax", "hardmax"])


@edit("read")
def _read(body: Body, rng: random.Random) -> None:
    body["network"]["read"] = rng.choice(["last", "each", "pooled"])


@edit("readout")
def _readout(body: Body, rng: random.Random) -> None:
    for found in objects(body["network"]):
        if "offset" in found:
            found["offset"] += rng.choice([-1, 1])


@edit("classes rotated")
def _rotated(body: Body, rng: random.Random) -> None:
    body["classes"] = body["classes"][1:] + body["classes"][:1]


@edit("class renamed")
def _renamed(body: Body, rng: random.Random) -> None:
    body["classes"][rng.randrange(len(body["classes"]))] = "never seen"


@edit("class of another type")
def _retyped(body: Body, rng: random.Random) -> None:
    place = rng.randrange(len(body["classes"]))
    value = body["classes"][place]
    body["classes"][place] = str(value) if isinstance(value, int) else {"bytes": str(value).encode().hex()}


@edit("class doubled")
def _class_doubled(body: Body, rng: random.Random) -> None:
    body["classes"][-1] = body["classes"][0]


@edit("symbol renamed")
def _symbol(body: Body, rng: random.Random) -> None:
    if symbols := body["encoder"]["symbols"]:
        last = symbols[-1]
        symbols[-1] = last + "x" if isinstance(last, str) else last + 1


@edit("symbol of another type")
def _symbol_type(body: Body, rng: random.Random) -> None:
    if symbols := body["encoder"]["symbols"]:
        symbols[-1] = str(symbols[-1]) if not isinstance(symbols[-1], str) else {"float": "0x1.0000000000000p+0"}


@edit("symbols swapped")
def _symbols_swapped(body: Body, rng: random.Random) -> None:
    if (symbols := body["encoder"]["symbols"]) and len(symbols) > 1:
        symbols[0], symbols[1] = symbols[1], symbols[0]


@edit("symbol added")
def _symbol_added(body: Body, rng: random.Random) -> None:
    if symbols := body["encoder"]["symbols"]:
        symbols.insert(0, symbols[0] - 1 if isinstance(symbols[0], int) else "")


@edit("length")
def _length(body: Body, rng: random.Random) -> None:
    body["encoder"]["length"] += rng.choice([-1, 1]) or 1


@edit("padded")
def _padded(body: Body, rng: random.Random) -> None:
    body["encoder"]["padded"] = not body["encoder"]["padded"]


@edit("pad vector")
def _pad_vector(body: Body, rng: random.Random) -> None:
    if body["encoder"]["pad_vector"]:
        body["encoder"]["pad_vector"][0] = rng.choice([[0, 0], [1, 0], [2, -1], [1, -1]])


@edit("positions")
def _positions(body: Body, rng: random.Random) -> None:
    body["encoder"]["positions"] = not body["encoder"]["positions"]


@edit("task")
def _task(body: Body, rng: random.Random) -> None:
    body["encoder"]["task"] = rng.choice(["next-token", "seq-to-seq", "set", "causal"])


@edit("rows cut")
def _cut(body: Body, rng: random.Random) -> None:
    kind = body["tokens"] if isinstance(body["tokens"], str) else body["tokens"]["kind"]
    body["tokens"] = {"kind": kind, "model": None, "max_length": 1, "pad": None, "type": "auto"}


@edit("tokens of another type")
def _token_type(body: Body, rng: random.Random) -> None:
    kind = body["tokens"] if isinstance(body["tokens"], str) else body["tokens"]["kind"]
    body["tokens"] = {"kind": kind, "model": None, "max_length": None, "pad": None, "type": rng.choice(["str", "int"])}


@edit("selection")
def _selection(body: Body, rng: random.Random) -> None:
    body["selection"].update(max_rows=1, conflicts="drop", missing="drop")


@edit("label type")
def _label_type(body: Body, rng: random.Random) -> None:
    body["selection"]["label_type"] = "str"
    body["classes"] = [str(c) if type(c) is int else c for c in body["classes"]]


@edit("claim emptied")
def _claim_emptied(body: Body, rng: random.Random) -> None:
    body["claim"]["bounds"] = {}


@edit("claim raised")
def _claim_raised(body: Body, rng: random.Random) -> None:
    body["claim"]["bounds"] = dict.fromkeys(body["claim"]["bounds"], 10**9)


@edit("claim lowered")
def _claim_lowered(body: Body, rng: random.Random) -> None:
    body["claim"]["bounds"]["parameters"] = body["certificate"]["size"]["parameters"] - 1


@edit("claim lowered in a file of another version")
def _foreign_claim_lowered(body: Body, rng: random.Random) -> None:
    _claim_lowered(body, rng)
    body["version"] = "9.9"


@edit("claim raised in a file of another version")
def _foreign_claim_raised(body: Body, rng: random.Random) -> None:
    _claim_raised(body, rng)
    body["version"] = "9.9"


@edit("half of a surrogate pair")
def _half_pair(body: Body, rng: random.Random) -> None:
    place = rng.choice(["version", "construction", "notes", "option", "label", "formula", "reason"])
    if place == "notes":
        body["notes"].append("\ud800")
    elif place == "option":
        body["options"]["\udfff"] = 1
    elif place in ("label", "formula"):
        body["claim"]["label" if place == "label" else "formulas"] = "\ud800" if place == "label" else {"x": "\udc00"}
    elif place == "reason":
        body["certificate"]["reason"] += "\udfff"
    else:
        body[place] = "a\ud83d"


@edit("claim of an unknown size")
def _claim_strange(body: Body, rng: random.Random) -> None:
    body["claim"]["bounds"]["beauty"] = 3


@edit("claim properties")
def _claim_properties(body: Body, rng: random.Random) -> None:
    body["claim"]["properties"] = []


@edit("claim theorem")
def _claim_theorem(body: Body, rng: random.Random) -> None:
    body["claim"]["label"] = "Theorem 99"


@edit("recorded size")
def _recorded_size(body: Body, rng: random.Random) -> None:
    name = rng.choice(sorted(body["certificate"]["size"]))
    body["certificate"]["size"][name] += 1


@edit("recorded counts")
def _recorded_counts(body: Body, rng: random.Random) -> None:
    body["certificate"]["rows"] += 5


@edit("recorded verdict")
def _recorded_verdict(body: Body, rng: random.Random) -> None:
    body["certificate"]["verdict"] = "undecided"


@edit("fingerprint")
def _fingerprint(body: Body, rng: random.Random) -> None:
    body["certificate"]["fingerprint"] = "0" * 64


@edit("construction")
def _construction(body: Body, rng: random.Random) -> None:
    body["construction"] = "baum88" if body["construction"] != "baum88" else "ks25"


@edit("options")
def _options(body: Body, rng: random.Random) -> None:
    body["options"]["form"] = "another"


@edit("byheart's version")
def _version(body: Body, rng: random.Random) -> None:
    body["version"] = "9.9"


@edit("notes")
def _notes(body: Body, rng: random.Random) -> None:
    body["notes"].append("proved by the author himself")


@edit("unknown field")
def _unknown(body: Body, rng: random.Random) -> None:
    rng.choice(list(objects(body)))["extra"] = 1


@edit("missing field")
def _missing(body: Body, rng: random.Random) -> None:
    place = rng.choice([found for found in objects(body) if found and found is not body["options"]])
    place.pop(rng.choice(sorted(place)))


@edit("tokens of a decoder")
def _decoder_tokens(body: Body, rng: random.Random) -> None:
    found = body["network"].get(rng.choice(["inputs", "classes"]), [])
    if len(found) > 1:
        one, two = rng.sample(range(len(found)), 2)
        found[one], found[two] = rng.choice([(found[two], found[one]), (found[one], found[one]), (10**6, 0)])


@edit("known contexts")
def _known(body: Body, rng: random.Random) -> None:
    if known := body["network"].get("known"):
        body["network"]["known"] = rng.choice([known[16:], known[1:], known + known[-16:], known.replace("0", "g")])


@edit("parts of a decoder")
def _decoder_parts(body: Body, rng: random.Random) -> None:
    if found := body["network"].get("decoder"):
        name = rng.choice([n for n in ("activation", "skip", "codes", "length", "padded", "mixer") if n in found])
        if name == "activation":
            found[name] = rng.choice(["tanh", "sigmoid", "arctan", "gelu", "relu"])
        elif name == "codes":
            found[name][rng.randrange(len(found[name]))] = rng.choice([0, 1, -1, 2**70])
        elif name == "mixer":
            found[name]["kind"] = rng.choice(["average", "attention", "x"])
        else:
            found[name] = not found[name] if isinstance(found[name], bool) else found[name] + 1


@edit("weight that is not a double")
def _not_a_double(body: Body, rng: random.Random) -> None:
    cell(body, rng)[1] = rng.choice(["0x1p1024", "0x1p-1075", "0x20000000000001p1", "0x1p1023", "0x1p-1074"])


@edit("recorded gap")
def _recorded_gap(body: Body, rng: random.Random) -> None:
    if gap := body["certificate"].get("gap"):
        gap[rng.choice(sorted(gap))] = rng.choice([0, 1, "0x1p-30", "0x1p2000", None])


@edit("no gap recorded")
def _no_gap(body: Body, rng: random.Random) -> None:
    body["certificate"].pop("gap", None)


@edit("a gap recorded")
def _gap(body: Body, rng: random.Random) -> None:
    numbers = dict.fromkeys(("entropy", "lower", "upper", "allowed", "fraction", "tokens"), 1)
    body["certificate"].setdefault("gap", numbers | {"labels_proved": 0, "labels_refuted": 0})


@edit("number in another form")
def _another_form(body: Body, rng: random.Random) -> None:
    found = cell(body, rng)
    if isinstance(found[1], int):
        found[1] = f"{'-' if found[1] < 0 else ''}0x{abs(found[1]):x}"
    else:
        found[1] = found[1].replace("0x", "0x0")


@edit("zero stored")
def _zero(body: Body, rng: random.Random) -> None:
    cell(body, rng)[1] = 0


@edit("columns out of order")
def _columns(body: Body, rng: random.Random) -> None:
    rows = [row for m in matrices(body) for row in m["rows"] if len(row) > 1]
    if rows:
        rng.choice(rows).reverse()
