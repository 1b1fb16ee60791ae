"""Images and labels from idx files, the format of MNIST, from any folder.

    python examples/compare/idx_files.py /usr/share/datasets/fashion-mnist

MNIST, Fashion-MNIST, KMNIST and EMNIST come as four such files: images and labels, for training
and for testing. Debian has Fashion-MNIST (Zalando, MIT license, 31 MB)::

    apt install dataset-fashion-mnist

The format: two zero bytes, a byte for the type of the numbers, a byte for the number of axes, the
length of each axis as a big-endian 32-bit number, then all numbers, big-endian
(http://yann.lecun.com/exdb/mnist/).
"""

from __future__ import annotations

import argparse
import gzip
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")  # Of Debian's package.

_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_GZIP = b"\x1f\x8b"

Bytes = npt.NDArray[np.uint8]


class IdxError(ValueError):
    """A file is not in the idx format, or files do not belong together."""


@dataclass(frozen=True)
class ImageSet:
    """Images with labels, as they were published.

    Attributes:
        train_images: Pixels from 0 to 255, shape (n, height, width).
        train_labels: Classes from 0, shape (n,).
        test_images: As ``train_images``.
        test_labels: As ``train_labels``.
    """

    train_images: Bytes
    train_labels: Bytes
    test_images: Bytes
    test_labels: Bytes


def read_idx(path: str | Path) -> npt.NDArray[Any]:
    """Returns the array of one idx file, gzipped or not, in the machine's own byte order.

    Raises:
        FileNotFoundError: If there is no such file.
        IdxError: If the file is not an idx file, or longer or shorter than it says.
    """
    data = Path(path).read_bytes()
    if data.startswith(_GZIP):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError) as error:
            raise IdxError(f"{path} is a damaged gzip file ({error}). Copy it again.") from error
    kind = _TYPES.get(data[2]) if len(data) >= 4 and data[:2] == b"\0\0" else None
    if kind is None:
        raise IdxError(
            f"{path} is not an idx file: it starts with {data[:4].hex(' ') or 'nothing'}. "
            "An idx file starts with two zero bytes and the type of its numbers."
        )
    axes = data[3]
    start = 4 + 4 * axes
    if len(data) < start:
        raise IdxError(f"{path} ends within its header. Copy it again.")
    shape = struct.unpack(f">{axes}I", data[4:start])
    size = math.prod(shape) * np.dtype(kind).itemsize
    if len(data) - start != size:
        raise IdxError(
            f"{path} holds {len(data) - start} bytes of numbers, and its header says {size}. "
            "Copy it again."
        )
    numbers = np.frombuffer(data, dtype=kind, offset=start).reshape(shape)
    return numbers.astype(numbers.dtype.newbyteorder("="))


def load(folder: str | Path = FASHION_MNIST) -> ImageSet:
    """Returns the images and labels of a folder with the four files of MNIST or its likes.

    The names are those under which the sets are published: ``train-images-idx3-ubyte``,
    ``train-labels-idx1-ubyte``, ``t10k-images-idx3-ubyte`` (or ``test-...``) and
    ``t10k-labels-idx1-ubyte``; a dot before ``idx``, a prefix such as ``emnist-digits-`` and
    ``.gz`` do not matter.

    Raises:
        FileNotFoundError: If one of the four is missing.
        IdxError: If there are several for one of them, or they do not belong together.
    """
    train = _images_and_labels(Path(folder), ("train",))
    test = _images_and_labels(Path(folder), ("t10k", "test"))
    if train[0].shape[1:] != test[0].shape[1:]:
        raise IdxError(
            f"The images for training have the size {train[0].shape[1:]}, and those for testing "
            f"{test[0].shape[1:]}: {folder} mixes two data sets."
        )
    return ImageSet(*train, *test)


def scaled(images: Bytes) -> npt.NDArray[np.float32]:
    """Returns pixels in [0, 1]: divided by 255, a public number."""
    return images.astype(np.float32) / np.float32(255)


def _images_and_labels(folder: Path, parts: tuple[str, ...]) -> tuple[Bytes, Bytes]:
    image_file = _only(folder, parts, "images", 3)
    label_file = _only(folder, parts, "labels", 1)
    images, labels = read_idx(image_file), read_idx(label_file)
    for path, array, axes in ((image_file, images, 3), (label_file, labels, 1)):
        if array.ndim != axes or array.dtype != np.uint8:
            raise IdxError(
                f"{path} holds an array of shape {array.shape} of {array.dtype}, and {axes} axes "
                "of bytes are needed."
            )
    if len(images) != len(labels):
        raise IdxError(
            f"{image_file} holds {len(images)} images, {label_file} {len(labels)} labels."
        )
    return images, labels


def _only(folder: Path, parts: tuple[str, ...], what: str, axes: int) -> Path:
    names = [f"{part}-{what}{mark}idx{axes}-ubyte" for part in parts for mark in "-."]
    paths = sorted(
        path
        for path in (folder.iterdir() if folder.is_dir() else ())
        if path.name.removesuffix(".gz").endswith(tuple(names))
    )
    if not paths:
        raise FileNotFoundError(
            f"{folder} has no file {names[0]}, gzipped or not. For Fashion-MNIST: "
            f"apt install dataset-fashion-mnist, which puts it into {FASHION_MNIST}."
        )
    if len({path.name.removesuffix(".gz") for path in paths}) > 1:
        raise IdxError(
            f"{folder} has several data sets: {', '.join(path.name for path in paths)}. Put each "
            "into a folder of its own."
        )
    return paths[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=FASHION_MNIST)
    images = load(parser.parse_args().folder)
    for name in ("train_images", "train_labels", "test_images", "test_labels"):
        array = getattr(images, name)
        print(f"{name:13} {array.shape}, from {array.min()} to {array.max()}")


if __name__ == "__main__":
    main()
