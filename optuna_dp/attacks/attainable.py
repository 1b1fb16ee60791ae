"""Pairs of output laws that a run described by an event can really have.

Accountants round losses up: their pairs dominate, and an attack on them proves nothing. The pairs
made here are garblings of the output laws of a run that the event allows, so every attack on them
is an attack on that run (``docs/explanation/profile-bound.md``, section "Attainable pairs").

* A single Gaussian or Laplace release (subsampled or not): outputs are put into bins whose masses
  come from the exact distribution functions. Exact up to rounding.
* Compositions: every step's outputs are put into bins, and the bins' losses rounded down to a
  lattice (the bins are cut so that little is lost). That raises O', hence the composition lies
  below the truth for e^eps >= 1. The reverse direction is done in the same way for e^eps < 1,
  and the two halves are joined by an atom of zero loss. Exact up to the rounding of the Fourier
  transform (entries near its noise are dropped).
* (epsilon, delta)-DP: randomised response. rho-zCDP: the Gaussian release of that rho.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import dp_accounting
import numpy as np
import numpy.typing as npt
from scipy import fft, special

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.events import neighboring_relation
from optuna_dp.accounting.kinds.approximate import ApproximateDpEvent, randomized_response
from optuna_dp.accounting.kinds.worst_case import WorstCaseDpEvent
from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import UnsupportedEventError

_BINS = 20_000
# Rounding to the lattice costs more, the more steps there are: so then it has more points.
_FEWEST_POINTS = 2**16
_POINTS_PER_ROOT_OF_STEPS = 2**14
_MOST_POINTS = 2**19
_ATOMS = 8192
# Parts of a step's lattice, about so many, whose masses are bounded together.
_BLOCKS = 2**14
_ALIASED_MASS = 1e-16
_SMALLEST = 1e-290


def attainable_pairs(
    event: dp_accounting.DpEvent, relation: str = "add_or_remove_one"
) -> tuple[DominatingPair, ...]:
    """Returns pairs that runs satisfying ``event`` can have (one for each alternative in it).

    Args:
        event: Made of Gaussian, Laplace, Poisson-sampled Gaussian and Laplace, approximate (or
            pure) and zero-concentrated events, compositions of them, and worst cases.
        relation: "add_or_remove_one" or "replace_one".

    Raises:
        UnsupportedEventError: If no attainable pair is known for a part of the event.
    """
    neighboring_relation(relation)  # refuses an unknown name
    return tuple(
        _compose(_merge_gaussians(steps), replace=relation == "replace_one")
        for steps in _alternatives(event)
    )


@dataclass(frozen=True)
class _Step:
    """One kind of release: ``kind`` in gaussian, laplace, response; done ``count`` times."""

    kind: str
    scale: float
    sampling: float
    count: int
    delta: float = 0.0


def _alternatives(event: dp_accounting.DpEvent, count: int = 1) -> Iterator[list[_Step]]:
    """Yields the lists of steps that ``count`` runs of the event can consist of."""
    if isinstance(event, dp_accounting.NoOpDpEvent):
        yield []
    elif isinstance(event, dp_accounting.SelfComposedDpEvent):
        yield from _alternatives(event.event, count * event.count)
    elif isinstance(event, dp_accounting.ComposedDpEvent):
        for parts in itertools.product(*(list(_alternatives(e, count)) for e in event.events)):
            yield [step for part in parts for step in part]
    elif isinstance(event, WorstCaseDpEvent):
        for alternative in event.events:
            yield from _alternatives(alternative, count)
    else:
        yield [_single(event, count)]


def _single(event: dp_accounting.DpEvent, count: int) -> _Step:
    sampling, inner = 1.0, event
    if isinstance(event, dp_accounting.PoissonSampledDpEvent):
        sampling, inner = float(event.sampling_probability), event.event
    if isinstance(inner, dp_accounting.GaussianDpEvent) and inner.noise_multiplier > 0.0:
        return _Step("gaussian", float(inner.noise_multiplier), sampling, count)
    if isinstance(inner, dp_accounting.LaplaceDpEvent) and inner.noise_multiplier > 0.0:
        return _Step("laplace", float(inner.noise_multiplier), sampling, count)
    if isinstance(event, ApproximateDpEvent):
        return _Step("response", float(event.epsilon), 1.0, count, float(event.delta))
    if isinstance(event, dp_accounting.ZCDpEvent) and event.xi == 0.0 and event.rho > 0.0:
        return _Step("zcdp", 1.0 / math.sqrt(2.0 * event.rho), 1.0, count)
    raise UnsupportedEventError(event, "no attainable pair of output laws is known for it")


def _merge_gaussians(steps: list[_Step]) -> list[_Step]:
    """Plain Gaussian releases compose to one: the squares of the distances add up."""
    merged, unmerged = {"gaussian": 0.0, "zcdp": 0.0}, []
    for step in steps:
        if step.kind in merged and step.sampling == 1.0:
            merged[step.kind] += step.count / step.scale**2
        elif step.sampling > 0.0 and step.count > 0:
            unmerged.append(step)
    plain = [_Step(k, 1.0 / math.sqrt(v), 1.0, 1) for k, v in merged.items() if v > 0.0]
    return plain + unmerged


def _compose(steps: list[_Step], *, replace: bool) -> DominatingPair:
    if not steps:
        return DominatingPair.identity()
    if len(steps) == 1 and steps[0].count == 1:
        step = steps[0]
        if step.kind == "response":
            return randomized_response(step.scale, step.delta)
        on, off = _bins(step, replace, _edges(step, replace, _BINS))
        return _pair(on, off, 0.0, 0.0)
    return _on_lattice(steps, replace)


# --- one step ------------------------------------------------------------------------------


def _centres(step: _Step, replace: bool) -> tuple[float, float]:
    """Where the noise is centred on D and on D' when the record takes part."""
    return (1.0, -1.0) if replace and step.kind != "zcdp" else (1.0, 0.0)


def _edges(step: _Step, replace: bool, n: int) -> FloatArray:
    """Returns n interior bin edges, even in the output, that cover all but ~1e-20 of the mass."""
    reach = (9.5 if step.kind != "laplace" else 0.0) * step.scale
    low_centre, high_centre = _centres(step, replace)[1], 1.0
    if step.kind == "laplace":
        # Beyond the centres the loss is constant: one bin on either side loses nothing.
        return np.linspace(min(low_centre, 0.0), high_centre, n)
    return np.linspace(low_centre - reach, high_centre + reach, n)


def _loss(x: FloatArray, step: _Step, replace: bool) -> FloatArray:
    """Returns the privacy loss of output x (non-decreasing in x)."""
    logs = []
    for centre in _centres(step, replace):
        if step.kind == "laplace":
            shift = (np.abs(x) - np.abs(x - centre)) / step.scale
        else:
            shift = (x * centre - 0.5 * centre**2) / step.scale**2
        take = math.log(step.sampling)
        skip = math.log1p(-step.sampling) if step.sampling < 1.0 else -math.inf
        logs.append(np.logaddexp(skip, take + shift))
    return np.asarray(logs[0] - logs[1])


def _bins(step: _Step, replace: bool, edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns the masses under O and O' of the bins cut by ``edges``, the outer ones infinite."""
    masses = []
    for centre in _centres(step, replace):
        with_record = _between(edges, centre, step)
        without_record = _between(edges, 0.0, step) if step.sampling < 1.0 else 0.0
        masses.append(step.sampling * with_record + (1.0 - step.sampling) * without_record)
    return masses[0], masses[1]


def _between(edges: FloatArray, centre: float, step: _Step) -> FloatArray:
    z = (np.concatenate([[-np.inf], edges, [np.inf]]) - centre) / step.scale
    minus_distance = -np.abs(z)
    small = (
        0.5 * np.exp(minus_distance) if step.kind == "laplace" else special.ndtr(minus_distance)
    )
    cumulative = np.where(z < 0.0, small, 1.0 - small)
    # Subtract on the side where the numbers are small.
    mass = np.where(z[:-1] > 0.0, small[:-1] - small[1:], cumulative[1:] - cumulative[:-1])
    return np.maximum(mass, 0.0)


def _pair(on: FloatArray, off: FloatArray, infinite: float, null: float) -> DominatingPair:
    """Returns the pair of the finite outputs (on, off) and the given masses of infinite loss."""
    solid = (on > _SMALLEST) & (off > _SMALLEST)
    if not solid.any():
        return DominatingPair.identity()  # everything in one bin: always attainable
    losses = np.log(on[solid]) - np.log(off[solid])
    order = np.argsort(losses, kind="stable")
    # Equal losses (and what rounding left almost equal) become one output: a garbling.
    group = np.concatenate([[0], np.cumsum(np.diff(losses[order]) > 1e-12)])
    # So does what one law hardly has: it joins the outputs of lowest or of highest loss.
    low, high = ~solid & (on <= off), ~solid & (on > off)
    masses = []
    for law, atom in ((on, infinite), (off, null)):
        merged = _sums(group, law[solid][order])
        merged[0] += law[low].sum()
        merged[-1] += law[high].sum()
        masses.append(merged * ((1.0 - atom) / merged.sum()))  # a matter of rounding
    on, off = masses
    return DominatingPair(
        losses=np.log(on) - np.log(off), mass=on, infinite_mass=infinite, null_mass=null
    )


# --- compositions --------------------------------------------------------------------------


def _on_lattice(steps: list[_Step], replace: bool) -> DominatingPair:
    width = _lattice_width(steps, replace)
    on, on_infinite = _low_side(steps, replace, width, reverse=False)
    off, off_infinite = _low_side(steps, replace, width, reverse=True)
    # (k, mass): losses k * width > 0 with O-masses; losses -k * width < 0 with O'-masses.
    kf, f = on
    kr, r = off
    f_prime, r_prime = f * np.exp(-kf * width), r * np.exp(-kr * width)
    # The two halves must agree at e^eps = 1, and leave no less than nothing at zero loss.
    tv_f = float(np.sum(f * -np.expm1(-kf * width))) + on_infinite
    tv_r = float(np.sum(r * -np.expm1(-kr * width))) + off_infinite
    common = min(tv_f, tv_r)
    if common <= 1e-15:
        return DominatingPair.identity()
    total = (f.sum() + on_infinite) * common / tv_f + r_prime.sum() * common / tv_r
    shrink = min(1.0, 1.0 / total) * (1.0 - 1e-12)
    scale_f, scale_r = shrink * common / tv_f, shrink * common / tv_r
    f, f_prime, on_infinite = f * scale_f, f_prime * scale_f, on_infinite * scale_f
    r, r_prime, off_infinite = r * scale_r, r_prime * scale_r, off_infinite * scale_r
    middle = 1.0 - f.sum() - r_prime.sum() - on_infinite
    stride = max(1, (kf.size + kr.size) // _ATOMS)
    mass = np.concatenate([_merge(r_prime, stride)[::-1], [middle], _merge(f, stride)])
    prime = np.concatenate([_merge(r, stride)[::-1], [middle], _merge(f_prime, stride)])
    return _pair(mass, prime, on_infinite, off_infinite)


def _merge(values: FloatArray, stride: int) -> FloatArray:
    """Adds up ``stride`` neighbours at a time (a garbling, if both laws are treated alike)."""
    if values.size == 0:
        return values
    return np.add.reduceat(values, np.arange(0, values.size, stride))


def _sums(index: npt.NDArray[np.int64], values: FloatArray) -> FloatArray:
    return np.asarray(np.bincount(index, values), dtype=np.float64)


def _atoms(
    step: _Step, replace: bool, edges: FloatArray, reverse: bool
) -> tuple[FloatArray, FloatArray, float]:
    """Returns (O, O', O-mass of infinite loss) of a step, the laws swapped if ``reverse``."""
    if step.kind == "response":
        pair = randomized_response(step.scale, step.delta)
        on, off, infinite = pair.mass, pair.mass_prime, pair.infinite_mass
        if reverse:
            on, off, infinite = off, on, pair.null_mass
        return on, off, infinite
    on, off = _bins(step, replace, edges)
    return (off, on, 0.0) if reverse else (on, off, 0.0)


def _lattice_width(steps: list[_Step], replace: bool) -> float:
    """Returns the lattice step: the spread of the total loss over the number of points."""
    lowest = highest = 0.0
    orders = np.logspace(-2, 2.5, 40)
    up, down = np.zeros(40), np.zeros(40)
    for step in steps:
        on, off, _ = _atoms(step, replace, _edges(step, replace, 4000), reverse=False)
        solid = (on > _SMALLEST) & (off > _SMALLEST)
        loss = np.log(on[solid] / off[solid])
        up += step.count * special.logsumexp(orders[:, None] * loss, b=on[solid], axis=1)
        down += step.count * special.logsumexp(-orders[:, None] * loss, b=off[solid], axis=1)
    highest = float(np.min((up + 40.0) / orders))
    lowest = float(np.min((down + 40.0) / orders))
    points = _POINTS_PER_ROOT_OF_STEPS * math.sqrt(sum(step.count for step in steps))
    width = max(highest + lowest, 1e-6) / min(max(points, _FEWEST_POINTS), _MOST_POINTS)
    # Losses that are constants rather than continuous should fall on the lattice.
    scales = [s.scale for s in steps if s.kind == "response"]
    scales += [1.0 / s.scale for s in steps if s.kind == "laplace" and s.sampling == 1.0]
    return scales[0] / math.ceil(scales[0] / width) if scales and scales[0] > 0.0 else width


def _low_side(
    steps: list[_Step], replace: bool, width: float, reverse: bool
) -> tuple[tuple[FloatArray, FloatArray], float]:
    """Returns ((k, mass), infinite mass): O with losses rounded down to k * width.

    Only k > 0 is returned: the part that matters for e^eps >= 1.
    """
    finite = 1.0
    lattices: list[tuple[int, FloatArray, int]] = []
    for step in steps:
        index, mass, infinite = _round_down(step, replace, width, reverse)
        lowest = int(index.min())
        lattices.append((lowest, _sums(index - lowest, mass), step.count))
        finite *= (1.0 - infinite) ** step.count
    k, total = _convolve(lattices, width)
    return (k[k > 0], total[k > 0]), 1.0 - finite


def _round_down(
    step: _Step, replace: bool, width: float, reverse: bool
) -> tuple[npt.NDArray[np.int64], FloatArray, float]:
    """Returns (k, O-mass, infinite O-mass) of a step whose losses are rounded down to k * width.

    The bins are cut halfway between lattice points, moved up by the least amount that puts nearly
    every bin's own loss just above its lattice point: rounding down then costs little.
    """
    if step.kind == "response":
        return _floor(*_atoms(step, replace, np.empty(0), reverse), width)[:3]
    x = _edges(step, replace, 200_000)
    loss = _loss(x, step, replace)
    k = np.arange(math.floor(loss[0] / width), math.ceil(loss[-1] / width) + 1)
    sign = -1.0 if reverse else 1.0
    roundings = []
    for part in (1e-4, 1e-3, 1e-2, 0.1, 0.5):
        edges = np.unique(np.interp((k + 0.5 + sign * part) * width, loss, x))
        roundings.append(_floor(*_atoms(step, replace, edges, reverse), width))
    return min(roundings, key=lambda rounded: rounded[3])[:3]


def _floor(
    on: FloatArray, off: FloatArray, infinite: float, width: float
) -> tuple[npt.NDArray[np.int64], FloatArray, float, float]:
    """Returns (k, O-mass, infinite O-mass, mean loss given up)."""
    solid = (on > _SMALLEST) & (off > _SMALLEST)
    on, steps = on[solid], np.log(on[solid] / off[solid]) / width
    # 1e-7 of a step forgives the rounding of losses that lie on the lattice exactly.
    index = np.floor(steps + 1e-7).astype(np.int64)
    return index, on, infinite, float(np.sum(on * (steps - index)))


def _convolve(
    lattices: list[tuple[int, FloatArray, int]], width: float
) -> tuple[FloatArray, FloatArray]:
    """Returns the lattice indices and masses of the sum of all steps' losses."""
    orders = np.concatenate([-np.logspace(-2, 2.5, 60)[::-1], np.logspace(-2, 2.5, 60)]) * width
    log_mgf = np.zeros(orders.size)
    offset = 0
    for start, mass, count in lattices:
        # A block of neighbours counts as if it stood at its outer end: an upper bound.
        block = mass.size // _BLOCKS + 1
        ends = orders[:, None, None] * np.add.outer([0, block - 1], np.arange(0, mass.size, block))
        log_mgf += count * special.logsumexp(ends.max(axis=1), b=_merge(mass, block), axis=1)
        offset += start * count
    # Chernoff: all but _ALIASED_MASS of the sum lies in [low, high] (counted from ``offset``).
    reach = (log_mgf - math.log(_ALIASED_MASS)) / orders
    low = max(0, math.floor(float(np.max(reach[orders < 0.0]))))
    high = math.ceil(float(np.min(reach[orders > 0.0])))
    high = min(high, sum((mass.size - 1) * count for _, mass, count in lattices))
    size = fft.next_fast_len(max([high - low + 1] + [m.size for _, m, _ in lattices]), real=True)
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    for _, mass, count in lattices:
        spectrum *= fft.rfft(mass, size) ** count
    total = np.roll(fft.irfft(spectrum, size), -(low % size))[: high - low + 1]
    noise = max(0.0, -float(total.min()))
    total[total < 4.0 * noise] = 0.0
    return (offset + low + np.arange(total.size)).astype(np.float64), total
