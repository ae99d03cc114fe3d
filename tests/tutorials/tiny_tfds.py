"""Small datasets under the names that the tutorials use, where TFDS looks for them."""

import contextlib
import io
import os
from typing import Any

import cv2  # type: ignore[import-not-found,unused-ignore]
import numpy as np
import tensorflow_datasets as tfds  # type: ignore[import-not-found,import-untyped,unused-ignore]


def prepare() -> None:
    """Write the datasets into the home directory, in place of those on the internet."""
    rng = np.random.default_rng(0)
    _write("mnist", "train", [_digit(rng, number % 10) for number in range(60)])
    _write("pneumonia_mnist", "train", [_digit(rng, number % 2) for number in range(40)])
    photos = [
        {
            "file_name": f"{number}.jpg",
            "image": _encoded(".jpg", rng.integers(0, 256, (300 + number, 280, 3))),
            "label": number,
        }
        for number in range(8)
    ]
    _write("imagenet_a", "test", photos)


def _digit(rng: np.random.Generator, label: int) -> dict[str, Any]:
    return {"image": _encoded(".png", rng.integers(0, 256, (28, 28, 1))), "label": label}


def _encoded(kind: str, image: Any) -> io.BytesIO:
    # TFDS would need TensorFlow to encode an array, but takes what is encoded.
    _, data = cv2.imencode(kind, image.astype(np.uint8))
    return io.BytesIO(data.tobytes())


def _write(name: str, split: str, examples: list[dict[str, Any]]) -> None:
    builder = tfds.builder(name, file_format="array_record")
    builder._split_generators = lambda *args: {split: iter(enumerate(examples))}
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        builder.download_and_prepare()
