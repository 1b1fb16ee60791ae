"""The cryptography of the secure sum: masks, letters, shares of secrets."""

from __future__ import annotations

import itertools
import os
import random

import numpy as np
import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from scipy import stats

from optuna_dp.federated import secure_keys
from optuna_dp.federated.secure_keys import (
    KEY,
    LETTER,
    SHARE,
    combine_shares,
    create_shares,
    is_public_key,
    mask,
    pair_mask,
    private_key,
    public_key,
    read_letter,
    view_of,
    write_letter,
)

PRIME = 2**521 - 1


@pytest.mark.parametrize(("threshold", "count"), [(1, 1), (2, 3), (4, 6), (7, 7), (9, 20)])
def test_any_shares_of_the_threshold_give_the_secret_back(threshold: int, count: int) -> None:
    for secret in (os.urandom(KEY), bytes(KEY), b"\xff" * KEY):
        shares = dict(enumerate(create_shares(secret, threshold, count), start=1))
        assert {len(share) for share in shares.values()} == {SHARE}
        subsets = itertools.islice(itertools.combinations(shares, threshold), 50)
        for points in [*subsets, tuple(shares)]:
            assert combine_shares({point: shares[point] for point in points}) == secret


def test_each_coefficient_is_fresh_randomness(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer shares than the threshold say nothing only if it is so: any secret fits them."""
    drawn: list[int] = []
    real = secure_keys.secrets.randbelow

    def noted(bound: int) -> int:
        assert bound == PRIME
        drawn.append(real(bound))
        return drawn[-1]

    monkeypatch.setattr(secure_keys.secrets, "randbelow", noted)
    secret = os.urandom(KEY)
    shares = create_shares(secret, 4, 6)
    assert len(set(drawn)) == 3
    for point, share in enumerate(shares, start=1):
        value = sum(c * point**i for i, c in zip((3, 2, 1), drawn, strict=True))
        assert int.from_bytes(share, "big") == (value + int.from_bytes(secret, "big")) % PRIME


def test_fewer_shares_or_others_give_no_secret() -> None:
    secret, draw = os.urandom(KEY), random.Random(1)
    shares = dict(enumerate(create_shares(secret, 3, 5), start=1))
    wrong = [
        {1: shares[1], 2: shares[2]},
        {1: shares[2], 2: shares[1], 3: shares[3]},
        {**shares, 4: draw.randbytes(SHARE)},
        {1: b"\xff" * SHARE, 2: shares[2], 3: shares[3]},
    ]
    for given in wrong:
        # By chance they give another one, once in 2^265.
        with pytest.raises(ValueError, match="secret"):
            combine_shares(given)


def test_masks_are_uniform_and_those_of_two_clients_cancel() -> None:
    first, second, view = private_key(), private_key(), b"v" * 32
    size = 50_000
    ours = pair_mask(first, public_key(second), view, 3, 7, size)
    theirs = pair_mask(second, public_key(first), view, 7, 3, size)
    assert not (ours + theirs).any()
    for words in (ours, theirs, mask(b"s" * KEY, size)):
        assert words.dtype == np.uint32
        assert stats.kstest(words / 2.0**32, "uniform").pvalue > 1e-4


def test_a_mask_depends_on_every_bit_of_its_key() -> None:
    """Flower's own masks fold a seed to 32 bits, which can all be tried."""
    key = bytearray(range(KEY))
    streams = {mask(bytes(key), 8).tobytes()}
    for i in range(8 * KEY):
        key[i // 8] ^= 1 << i % 8
        streams.add(mask(bytes(key), 8).tobytes())
        key[i // 8] ^= 1 << i % 8
    assert len(streams) == 8 * KEY + 1


@pytest.mark.parametrize("change", ["view", "other name", "own name", "key"])
def test_a_mask_depends_on_all_that_two_clients_were_shown(change: str) -> None:
    first, second = private_key(), private_key()
    same = (first, public_key(second), b"v", 3, 7, 40)
    others = {
        "view": (first, public_key(second), b"w", 3, 7, 40),
        "other name": (first, public_key(second), b"v", 3, 8, 40),
        "own name": (first, public_key(second), b"v", 2, 7, 40),
        "key": (first, public_key(private_key()), b"v", 3, 7, 40),
    }
    assert (pair_mask(*same) == pair_mask(*same)).all()
    assert (pair_mask(*same) != pair_mask(*others[change])).sum() > 35


def test_a_letter_is_read_by_whom_it_was_written_for() -> None:
    sender, recipient, view = private_key(), private_key(), b"v" * 32
    text = os.urandom(2 * SHARE)
    letter = write_letter(sender, public_key(recipient), view, 3, 7, text)
    assert len(letter) == LETTER
    assert read_letter(recipient, public_key(sender), view, 3, 7, letter) == text
    again = write_letter(sender, public_key(recipient), view, 3, 7, text)
    assert again[12:] != letter[12:]  # another nonce
    unreadable = [
        (recipient, public_key(sender), b"w" * 32, 3, 7, letter),
        (recipient, public_key(sender), view, 4, 7, letter),
        (recipient, public_key(sender), view, 7, 3, letter),  # sent back
        (private_key(), public_key(sender), view, 3, 7, letter),
        (recipient, public_key(private_key()), view, 3, 7, letter),
        (recipient, public_key(sender), view, 3, 7, letter[:-1] + bytes([letter[-1] ^ 1])),
    ]
    for arguments in unreadable:
        with pytest.raises(InvalidTag):
            read_letter(*arguments)


def test_a_view_tells_all_that_is_shown_apart() -> None:
    keys = {3: [b"a" * 32, b"b" * 32], 7: [b"c" * 32, b"d" * 32]}
    views = [
        view_of(1, "query", 2, keys),
        view_of(2, "query", 2, keys),
        view_of(1, "query ", 2, keys),
        view_of(1, "query", 3, keys),
        view_of(1, "query", 2, {3: keys[3]}),
        view_of(1, "query", 2, {3: keys[3], 8: keys[7]}),
        view_of(1, "query", 2, {3: keys[7], 7: keys[3]}),
        view_of(1, "query", 2, {3: keys[3][::-1], 7: keys[7]}),
    ]
    assert len(set(views)) == len(views)
    assert view_of(1, "query", 2, {7: keys[7], 3: keys[3]}) == views[0]


def test_a_public_key_of_small_order_is_none() -> None:
    order_8 = bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")
    for data in (bytes(32), bytes([1, *bytes(31)]), order_8, b"x" * 31, b"x" * 33, "x" * 32, None):
        assert not is_public_key(data)
    made = X25519PrivateKey.generate()
    assert is_public_key(made.public_key().public_bytes_raw())
    assert public_key(made.private_bytes_raw()) == made.public_key().public_bytes_raw()
