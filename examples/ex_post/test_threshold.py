"""The price of ``threshold.py`` against exact mechanisms, and variants that are wrong."""

import math

import numpy as np
from threshold import default_shares, price, search


def largest_loss_left(rng, claimed):
    """By how much a random instance's loss exceeds ``epsilons[i] + claimed(...)``, at most."""
    n = int(rng.integers(1, 5))
    epsilons, stop = rng.choice([0.1, 0.5, 1.0, 3.0], n), rng.choice([0.02, 0.2, 0.7])
    shares = default_shares(epsilons) if rng.random() < 0.5 else rng.dirichlet(np.ones(n))
    laws = []
    for epsilon in epsilons:  # Outputs 0 and 1 reach the threshold, 2 and 3 do not.
        on = rng.dirichlet(np.full(4, 0.5))
        if rng.random() < 0.5:  # randomised response
            on = np.array([1.0, 0.0, math.exp(epsilon), 0.0]) / (1.0 + math.exp(epsilon))
        low, high = on * math.exp(-epsilon), np.minimum(on * math.exp(epsilon), 1.0)
        off = high.copy()  # as much as epsilon allows on what reaches it; the rest as little
        off[2:] = 1.0 - on[:2].sum() * math.exp(epsilon) if on[2:].sum() == 0 else low[2:]
        off[2:] *= max((1.0 - off[:2].sum()) / max(off[2:].sum(), 1e-300), 0.0)
        if off[:2].sum() > 1.0 - low[2:].sum():
            off = low.copy()
            off[:2] *= (1.0 - low[2:].sum()) / max(low[:2].sum(), 1e-300)
        laws.append((on, off))
        with np.errstate(divide="ignore", invalid="ignore"):
            losses = np.abs(np.log(on / off))
        assert np.nanmax(losses) <= epsilon + 1e-9
    worst = -math.inf
    for here, there in ((0, 1), (1, 0)):
        reach = [
            stop
            + (1 - stop)
            * sum(s * law[side][:2].sum() for s, law in zip(shares, laws, strict=True))
            for side in (here, there)
        ]
        both = math.log(reach[1] / reach[0])
        worst = max(worst, both - claimed(epsilons, shares, stop))
        for epsilon, law in zip(epsilons, laws, strict=True):
            for y in (0, 1):
                if law[here][y] > 0:
                    loss = math.log(law[here][y] / law[there][y]) + both
                    worst = max(worst, loss - epsilon - claimed(epsilons, shares, stop))
    return worst


def test_no_loss_is_above_what_is_claimed():
    rng = np.random.default_rng(15183)
    found = [largest_loss_left(rng, price) for _ in range(2000)]
    assert max(found) <= 1e-9
    assert max(found) > -1e-9  # and it is attained


def test_variants_are_caught():
    wrong = (
        lambda epsilons, shares, stop: 0.0,
        lambda epsilons, shares, stop: 0.9 * price(epsilons, shares, stop),
        lambda epsilons, shares, stop: min(epsilons),
        lambda epsilons, shares, stop: price(epsilons[:1], [1.0], stop),
    )
    for claimed in wrong:
        rng = np.random.default_rng(15183)
        assert max(largest_loss_left(rng, claimed) for _ in range(300)) > 1e-6


def test_the_search_ends_and_releases_what_reaches_the_threshold():
    runs = [lambda: ("a", 0.0), lambda: ("b", 1.0)]
    found = [search(runs, [0.5, 0.5], 0.2, 0.5) for _ in range(200)]
    assert set(found) == {None, (1, "b")}
