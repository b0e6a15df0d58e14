"""Texts that nothing was tuned to: a poem of the standard library, program code, a list, a notice, other scripts."""

from __future__ import annotations

import codecs
import contextlib
import inspect
import io
import random


def _zen() -> str:
    with contextlib.redirect_stdout(io.StringIO()):
        import this
    return codecs.decode(this.s, "rot13")


def _code() -> str:
    import bisect

    return inspect.getsource(bisect)[:1500]


def _debts() -> str:
    draw, names = random.Random(5), ["Anselm", "Birgit", "Corvin", "Dagny", "Edwin"]
    rows = (f"{k:03d} {draw.choice(names)} owes {draw.choice(names)} {draw.randrange(10, 999)};\n" for k in range(36))
    return "".join(rows)


def _notice() -> str:
    import argparse

    return inspect.getsource(argparse)[:1400]


def _scripts() -> str:
    lines = (
        "Μῆνιν ἄειδε θεὰ Πηληϊάδεω Ἀχιλῆος",
        "Ночь, улица, фонарь, аптека,",
        "古池や蛙飛び込む水の音",
        "déjà-vu 🙂",
    )
    return "\n".join(lines) + "\n"


TEXTS = {"zen": _zen, "code": _code, "debts": _debts, "notice": _notice, "scripts": _scripts}
