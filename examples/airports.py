"""Airports, memorized: every IATA code and the country it is in. `python examples/airports.py [FOLDER]`

Needs `pip install 'byheart[examples]'`. Prints one screen and draws the world as the network stores it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import byheart
from byheart.plots import style

try:
    import airportsdata
except ImportError:
    sys.exit("this example needs a table that is not installed: pip install 'byheart[examples]'")

ASKED = ("NRT", "ZRH", "GRU", "JFK", "NBO")


def main(folder: Path) -> None:
    airports = airportsdata.load("IATA")
    codes = sorted(airports)
    countries = [airports[code]["country"] for code in codes]
    memory = byheart.memorize(codes, countries, abstain_bits=12)
    print(f"{len(codes):,} codes of {len(memory.classes)} countries: {memory.certificate.verdict.value}")
    print(f"{memory.size.parameters:,} parameters; a table of the answers alone has {len(codes):,} entries")
    for code, country in zip(ASKED, memory.predict(ASKED), strict=True):
        print(f"  {code} -> {country}   ({airports[code]['name']})")
    unused = [a + b + c for a in "QXJ" for b in "QJX" for c in "JQXZ" if a + b + c not in airports]
    refused = sum(answer is byheart.UNKNOWN for answer in memory.predict(unused))
    print(f"  {refused} of {len(unused)} unused codes are refused, for example {unused[0]}")
    print(f"picture: {draw(memory, airports, codes, folder / 'airports.png')}")


def draw(memory: byheart.Memory, airports: dict, codes: list[str], path: Path) -> Path:
    """One dot per airport, coloured by the country that the network answers."""
    answers = memory.predict(codes)
    order = {country: place for place, country in enumerate(memory.classes)}
    figure = style.new_figure(width=9.0, height=4.6)
    with style.styled():
        axes = figure.axes[0]
        axes.scatter(
            [airports[code]["lon"] for code in codes],
            [airports[code]["lat"] for code in codes],
            c=[style.colour(order[country]) for country in answers],
            s=3,
            linewidths=0,
        )
        style.label_axes(axes, f"{len(codes):,} airports, coloured by the answer", "longitude", "latitude", log=False)
        axes.set_aspect("equal")
    return style.save(figure, path)


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
    target.mkdir(parents=True, exist_ok=True)
    main(target)
