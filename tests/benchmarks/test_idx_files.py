"""examples/compare/idx_files.py: the format of MNIST, on files that are made up here."""

from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "examples" / "compare"))

from idx_files import FASHION_MNIST, IdxError, load, read_idx, scaled

# By the table of the format: code, and struct's letter for one number.
TYPES = {"u1": (8, "B"), "i1": (9, "b"), "i2": (11, "h"), "i4": (12, "i"), "f4": (13, "f")}
TYPES["f8"] = (14, "d")


def idx(array: Any) -> bytes:
    """The bytes of an idx file, number by number."""
    code, letter = TYPES[array.dtype.str[1:]]
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return header + b"".join(struct.pack(f">{letter}", x) for x in array.ravel().tolist())


def made_up(folder: Path, prefix: str = "", mark: str = "-", zipped: bool = False) -> list[Any]:
    """Four files of two tiny sets of images, and what they hold."""
    rng = np.random.default_rng(0)
    arrays = []
    for part, count in (("train", 7), ("t10k", 3)):
        for what, axes, shape in (("images", 3, (count, 4, 5)), ("labels", 1, (count,))):
            array = rng.integers(0, 256, size=shape).astype(np.uint8)
            name = f"{prefix}{part}-{what}{mark}idx{axes}-ubyte"
            data = gzip.compress(idx(array), mtime=0) if zipped else idx(array)
            (folder / (name + (".gz" if zipped else ""))).write_bytes(data)
            arrays.append(array)
    return arrays


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("shape", [(6,), (2, 3), (1, 2, 3), (0, 4), ()])
def test_every_type_and_shape_is_read(kind: str, shape: Any, tmp_path: Path) -> None:
    array = np.random.default_rng(1).integers(0, 100, size=shape).astype(kind)
    array = np.asarray(array) - (0 if kind == "u1" else array.dtype.type(50))
    for name, data in (("plain", idx(array)), ("zipped", gzip.compress(idx(array), mtime=0))):
        (tmp_path / name).write_bytes(data)
        back = read_idx(tmp_path / name)
        np.testing.assert_array_equal(back, array)
        assert back.dtype == array.dtype
        assert back.shape == array.shape


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(("prefix", "mark"), [("", "-"), ("", "."), ("emnist-digits-", "-")])
def test_a_folder_is_read_whatever_its_files_are_called(
    prefix: str, mark: str, zipped: bool, tmp_path: Path
) -> None:
    arrays = made_up(tmp_path, prefix, mark, zipped)
    (tmp_path / "README").write_text("not an idx file")
    images = load(tmp_path)
    got = [images.train_images, images.train_labels, images.test_images, images.test_labels]
    for array, expected in zip(got, arrays, strict=True):
        np.testing.assert_array_equal(array, expected)
    assert scaled(np.array([[0, 51, 255]], np.uint8)).tolist() == [[0.0, np.float32(0.2), 1.0]]


def test_an_unpacked_copy_beside_a_packed_one_is_no_second_data_set(tmp_path: Path) -> None:
    made_up(tmp_path)
    made_up(tmp_path, zipped=True)
    assert len(load(str(tmp_path)).train_images) == 7


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x89PNG\r\n",
        b"\0\0\x07\x01" + b"\0\0\0\x01" + b"\0",
        b"\0\0\x08\x03\0\0",
        b"\0\0\x08\x01\0\0\0\x05" + b"1234",
        b"\0\0\x08\x01\0\0\0\x03" + b"1234",
        gzip.compress(b"\0\0\x08\x01\0\0\0\x03123", mtime=0)[:-9],
    ],
    ids=["nothing", "a picture", "an unknown type", "half a header", "short", "long", "gzip"],
)
def test_what_is_no_idx_file_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "pixels").write_bytes(data)
    with pytest.raises(IdxError, match="pixels"):
        read_idx(tmp_path / "pixels")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    made_up(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match="t10k-labels"):
        load(tmp_path)
    with pytest.raises(FileNotFoundError, match="train-images"):
        load(tmp_path / "nowhere")


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    made_up(tmp_path)
    file = tmp_path / "train-labels-idx1-ubyte"
    file.write_bytes(idx(np.zeros(6, np.uint8)))
    with pytest.raises(IdxError, match="train-labels"):
        load(tmp_path)
    file.write_bytes(idx(np.zeros(7, np.int32)))
    with pytest.raises(IdxError, match="int32"):
        load(tmp_path)
    file.write_bytes(idx(np.zeros(7, np.uint8)))
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(np.zeros((3, 5, 5), np.uint8)))
    with pytest.raises(IdxError, match="5, 5"):
        load(tmp_path)
    made_up(tmp_path, "emnist-letters-")
    with pytest.raises(IdxError, match="emnist-letters"):
        load(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(not FASHION_MNIST.is_dir(), reason="needs Debian's dataset-fashion-mnist")
def test_debians_fashion_mnist_is_read() -> None:
    images = load()
    assert images.train_images.shape == (60_000, 28, 28)
    assert images.test_images.shape == (10_000, 28, 28)
    assert np.bincount(images.train_labels).tolist() == [6000] * 10
    assert np.bincount(images.test_labels).tolist() == [1000] * 10
