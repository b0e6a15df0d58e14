"""Handwritten digits, memorized: scikit-learn's 1,797 images, each as eight tokens, one per row of pixels.

`python examples/digits.py [FOLDER]`. Needs `pip install 'byheart[examples]'`. Prints one screen and draws digits with
the network's answers: right on every image that it has seen, and "?" on those it has not.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import byheart
from byheart.plots import style

try:
    from sklearn.datasets import load_digits
except ImportError:
    sys.exit("this example needs scikit-learn, which contains the images: pip install 'byheart[examples]'")


def main(folder: Path) -> None:
    digits = load_digits()
    memory = byheart.memorize(digits.images, digits.target.tolist(), abstain_bits=10)
    size = memory.size
    print(f"{len(digits.images):,} images of 8 x 8 pixels, {memory.certificate.verdict.value}: all answers are right")
    print(f"{size.parameters:,} parameters of at most {size.max_bits} bits")
    flipped = digits.images[:, :, ::-1]
    answers = memory.predict(flipped)
    refused = sum(answer is byheart.UNKNOWN for answer in answers)
    print(f"mirrored: {refused:,} of {len(flipped):,} are refused. It memorized these images, it did not learn digits")
    print(f"picture: {draw(memory, digits.images, flipped, folder / 'digits.png')}")


def draw(memory: byheart.Memory, seen: np.ndarray, unseen: np.ndarray, path: Path) -> Path:
    """Two rows of images: known ones above, mirrored ones below, each with the answer."""
    count = 10
    with style.styled():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9.0, 2.9), layout="constrained")
        bands = figure.subfigures(2, 1)
        captions = ("Memorized images, with its answers", "The same images mirrored: it has never seen them")
        for band, words, images in zip(bands, captions, (seen[:count], unseen[:count]), strict=True):
            band.suptitle(words, x=0.01, ha="left", fontweight="bold", fontsize=10)
            for place, (image, answer) in enumerate(zip(images, memory.predict(images), strict=True)):
                axes = band.add_subplot(1, count, place + 1)
                axes.imshow(image, cmap="gray_r")
                axes.set_title("?" if answer is byheart.UNKNOWN else str(answer), loc="center", fontsize=9.5)
                axes.set_axis_off()
    return style.save(figure, path)


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
    target.mkdir(parents=True, exist_ok=True)
    main(target)
