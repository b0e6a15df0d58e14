"""Plain text: a row on each line that is not blank."""

from __future__ import annotations

from byheart.data.read.records import LINE, TEXT, Cells, Records, Source, reader


@reader(TEXT)
def text_lines(source: Source) -> Records:
    numbered, _ = source.lines()

    def select(names: tuple[str, ...]) -> Cells:
        for number, line in numbered:
            if line.strip():
                yield number, (line.rstrip("\r\n"),) * len(names)

    return Records((LINE,), select, source.name, "line")
