"""Secret shares are Flower's, only faster."""

from __future__ import annotations

import os
import random

import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')

from Crypto.Protocol.SecretSharing import _Element
from flwr.common.secure_aggregation.crypto import shamir as flower

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.federated import shamir

SIZES = [(1, 1), (2, 3), (4, 6), (7, 7), (9, 20)]


@pytest.mark.parametrize(("threshold", "num"), SIZES)
@pytest.mark.parametrize("length", [0, 15, 16, 32, 48])
def test_what_either_makes_either_combines(threshold: int, num: int, length: int) -> None:
    secret, draw = os.urandom(length), random.Random(1)
    ours = shamir.create_shares(secret, threshold, num)
    theirs = flower.create_shares(secret, threshold, num)
    assert {len(share) for share in [*ours, *theirs]} == {shamir.share_length(length)}
    for _ in range(2):
        assert flower.combine_shares(draw.sample(ours, threshold)) == secret
        assert shamir.combine_shares(draw.sample(theirs, threshold)) == secret
        assert shamir.combine_shares(draw.sample(theirs, num)) == secret


def test_lagranges_weights_are_those_of_the_definition() -> None:
    for indices in ((1,), (3, 1), (2, 5, 9, 200, 70_000, 2**31 - 1)):
        weights = shamir.lagrange_at_zero(indices)
        for j, weight in zip(indices, weights, strict=True):
            expected = _Element(1)
            for m in indices:
                if m != j:
                    expected = expected * _Element(m) * _Element(j ^ m).inverse()
            assert int(weight[0]) << 64 | int(weight[1]) == int(expected)


def test_each_coefficient_is_fresh_randomness(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer shares than the threshold say nothing only if it is so."""
    drawn: list[bytes] = []

    def noted(size: int) -> bytes:
        drawn.append(random.Random(3).randbytes(size))
        return drawn[-1]

    monkeypatch.setattr(os, "urandom", noted)
    shares = shamir.create_shares(b"0123456789abcde", 4, 6)  # one block, with its padding
    (bits,) = drawn
    coefficients = [bits[i : i + 16] for i in range(0, len(bits), 16)]
    assert len(coefficients) == 3
    for share in shares:
        index, value = int.from_bytes(share[:4], "little"), _Element(0)
        for coefficient in [*coefficients, b"0123456789abcde\x01"]:
            value = value * _Element(index) + _Element(coefficient)
        assert share[4:] == value.encode()


@pytest.mark.parametrize("change", ["twice", "lengths", "short", "zero", "another secret's"])
def test_shares_that_are_malformed_are_refused(change: str) -> None:
    shares = shamir.create_shares(b"secret", 3, 5)[:3]
    damaged = {
        "twice": [*shares[:2], shares[0]],
        "lengths": [*shares[:2], shares[2] + bytes(16)],
        "short": [share[:4] for share in shares],
        "zero": [*shares[:2], bytes(4) + shares[2][4:]],
        "another secret's": [share[:4] + bytes(16) for share in shares],  # whose padding is zero
    }
    with pytest.raises(InvalidArgumentError):
        shamir.combine_shares(damaged[change])
