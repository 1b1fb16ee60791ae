"""A second verifier: computes the epsilon of a release again, without optuna-dp.

    python verify_independently.py release.json

It was written from the pages of theorems (``docs/explanation``) and the papers named below, and
shares no line with the package. It needs numpy, scipy and dp-accounting, of which it takes the
composition of privacy losses. It believes no sentence of the file. Of its numbers it takes the
plan, works out what the runs cost, compares that with the events in the file, and computes epsilon
at the file's delta. The last line says the result:

AGREES        (exit code 0)  All that could be computed agrees.
DIFFERS       (exit code 1)  Something does not. Do not sign.
CANNOT JUDGE  (exit code 2)  Nothing differs, but this program cannot compute epsilon; it says why.
                             Or the file is no release.

TOLERANCE. The file's epsilon may be 0.5 % smaller than the one computed here, and 2 % (or 0.005)
larger. Both are upper bounds that round to grids, and the package has finer grids and the best of
more bounds. Without a selection the truth is known better: the file's epsilon must then not be
below a LOWER ESTIMATE, which is what two grids here say of the limit of ever finer ones. With a
selection it must not be below an attack. What is 0.5 to 5 % smaller, and not below these, is not
judged.

WHAT IT CANNOT DO: know whether the runs took place and did what the plan says. It does not look at
the words enforced, compared and not checked, nor at released attributes. Of the statement it
computes no mu, no Renyi curve, no tables and no sentences: ``optuna-dp verify`` does.
"""

# Notation. A mechanism has the laws P and P' on two neighbouring data sets. Its hockey stick is
# H(eps) = sup over events E of P(E) - e^eps P'(E), the delta at that epsilon. "Way" 0 takes a
# record away. Way 1 adds it: P and P' are exchanged. For replacing, both ways are alike.

import hashlib
import json
import math
import sys

import numpy as np
from dp_accounting.pld import pld_pmf
from scipy.special import gammaln, ndtr

BELOW, FAR_BELOW, ABOVE, LITTLE = 0.005, 0.05, 0.02, 0.005
LARGEST_EPSILON = 25.0  # Beyond it, sums of doubles no longer tell the numbers apart.


class CannotJudge(Exception):
    """Why this program says nothing about a release."""


class Contradiction(Exception):
    """What in the file contradicts itself."""


def number(value, low, high):
    if type(value) not in (int, float) or not low < value <= high:
        raise CannotJudge(f"{value!r} stands in it where a number above {low} is needed")
    return float(value)


def whole(value, high=10**9):
    if type(value) is not int or not 0 < value <= high:
        raise CannotJudge(f"{value!r} stands in it where a whole number is needed, {high} at most")
    return value


# -- 1. What the runs cost: {part: how often}, in one form for events and for plans ---------------


def together(*costs):
    total = {}
    for cost in costs:
        for part, times in cost.items():
            total[part] = total.get(part, 0) + times
    return total


def repeated(cost, times):
    return {part: n * whole(times) for part, n in cost.items()}


def gaussian(noise, rate=1.0):
    """Gaussian noise, on a Poisson sample of the records or on all."""
    return {("gaussian", number(rate, 0, 1), number(noise, 1e-2, 1e9)): 1}


def simple(kind, epsilon):
    """A mechanism that is epsilon-DP ("pure"), or of bounded range epsilon ("range")."""
    return {(kind, number(epsilon, 0, LARGEST_EPSILON)): 1}


def worst(*costs):
    return {("worst", tuple(sorted(tuple(cost.items()) for cost in costs))): 1}


def selection(run, trials, bounds, policy, startup):
    """The best of T runs, whose density relative to the prior is in [c, C]."""
    c, big = number(bounds[0], 0, 1), number(bounds[1], 0.999, 1e9)
    policy, startup = (None, 0) if c == big else (policy, startup or 0)
    law = json.dumps(trials, sort_keys=True)
    return {("selection", tuple(run.items()), law, c, big, policy, startup): 1}


def cost_of_event(event):
    kind = event["type"]
    if kind == "ComposedDpEvent":
        return together(*map(cost_of_event, event["events"]))
    if kind == "SelfComposedDpEvent":
        return repeated(cost_of_event(event["event"]), event["count"])
    if kind == "PoissonSampledDpEvent" and event["event"]["type"] == "GaussianDpEvent":
        return gaussian(event["event"]["noise_multiplier"], event["sampling_probability"])
    if kind == "GaussianDpEvent":
        return gaussian(event["noise_multiplier"])
    if kind == "ApproximateDpEvent" and event["delta"] == 0.0:
        return simple("pure", event["epsilon"])
    if kind == "BoundedRangeDpEvent":
        return simple("range", event["epsilon"])
    if kind == "WorstCaseDpEvent":
        return worst(*map(cost_of_event, event["events"]))
    if kind == "PerClientDpEvent":  # The "record" is then all that a client has.
        return cost_of_event(event["event"])
    if kind == "PrivateSelectionDpEvent":
        of = (event[name] for name in ("trials", "density_bounds", "policy", "startup_runs"))
        return selection(cost_of_event(event["run"]), *of)
    raise CannotJudge(f"it does not know the event {kind}")


def cost_of_run(run, rate, score):
    """A training, and a score with noise: on the same records, or on records of its own."""
    given = run.get("training") or run.get("event")
    training = (
        cost_of_event(given)
        if given
        else repeated(gaussian(run["noise_multiplier"], rate), run["steps"])
    )
    if run.get("score_noise_multiplier") is None:
        return training
    scoring = gaussian(run["score_noise_multiplier"])
    return worst(training, scoring) if score == "disjoint" else together(training, scoring)


def cost_of_plan(procedure, settings, run):
    """Returns the search's cost by the plan; ``run`` is a run's where the plan does not say it."""
    if procedure == "budget":
        plan = settings["plan"]
        ranges = (plan.get("ranges") or {}).get("noise_multipliers", [])
        costs = [
            repeated(cost_of_run(runs, plan["sample_rate"], plan["score"]), runs["count"])
            for runs in [*plan["rungs"], plan["final"]]
        ]
        return together(*map(gaussian, ranges), *costs)
    if procedure == "private_selection":
        told = settings.get("run")
        if told is not None:
            rate = told["batch_size"] / told["records"] if "records" in told else None
            run = cost_of_run(told, rate, told.get("score"))
        policy = "data" if settings["schedule"] == "any" else "history"
        bounds, startup = settings["density_bounds"], settings.get("startup_runs")
        return selection(run, settings["trials"], bounds, policy, startup)
    if procedure == "noisy_max":  # Gumbel noise makes it the exponential mechanism.
        mechanism = settings["mechanism"]
        kind = "range" if mechanism["noise"] == "gumbel" else "pure"
        return simple(kind, mechanism["epsilon"])
    if procedure == "propose_test":  # docs/explanation/propose-test.md, at most 2n - 1 iterations
        loop = settings["mechanism"]
        n = math.ceil(round((1 - loop["lower_bound"]) / loop["granularity"], 9))
        most = 2 * n - 1 if loop["variant"] == "bounded" else math.ceil(5 * math.log2(n + 1))
        given = loop["max_iterations"] or most
        times = min(given, most) if loop["variant"] == "bounded" else given
        return repeated(simple("pure", loop["epsilon_per_iteration"]), times)
    raise CannotJudge(f"it does not know the procedure {procedure!r}")


# -- 2. Hockey sticks -----------------------------------------------------------------------------


class Pair:
    """A mechanism by its hockey sticks, a function of arrays eps >= 0 for each way, and where they
    have a kink."""

    def __init__(self, take, add=None, kinks=()):
        self.of, self.kinks = (take, add or take), kinks

    def at(self, eps, way):
        """H at any eps. For eps < 0, H(eps) = 1 - e^eps (1 - H'(-eps)), H' of the other way."""
        ahead, back = self.of[way](np.abs(eps)), self.of[1 - way](np.abs(eps))
        return np.where(eps >= 0, ahead, 1 - np.exp(np.minimum(eps, 0)) * (1 - back))

    def larger(self, eps):
        return max(float(stick(np.array([eps]))[0]) for stick in self.of)

    def top(self):
        """An epsilon beyond which next to nothing changes."""
        top = 1e-3
        while top < 2 * LARGEST_EPSILON and self.larger(top) - self.larger(1.5 * top) > 1e-15:
            top *= 1.2
        return top


def gaussian_stick(eps, noise):
    """Balle & Wang, arXiv 1805.06530, Theorem 8."""
    up, down = ndtr(0.5 / noise - eps * noise), ndtr(-0.5 / noise - eps * noise)
    return np.maximum(up - np.exp(eps) * down, 0.0)


def sampled_pair(rate, noise):
    """A Gaussian on a Poisson sample (docs/explanation/sampling.md; arXiv 2106.08567v4)."""

    def take(eps):  # H(ln(1 + q (e^x - 1))) = q H_gaussian(x)
        return rate * gaussian_stick(np.log1p(np.expm1(eps) / rate), noise)

    def add(eps):  # The same, and the identity of Pair.at; no loss exceeds -log(1 - q).
        inside = np.maximum(1 - (1 - np.exp(-eps)) / rate, 1e-300)
        return rate * np.exp(eps) * inside * gaussian_stick(-np.log(inside), noise)

    return Pair(take, add)


def sampled_pair_replaced(rate, noise):
    """P = (1-q) N(0) + q N(1) against P' = (1-q) N(0) + q N(-1)."""

    def stick(eps):
        t, a = np.exp(eps), rate * math.exp(-0.5 / noise**2)
        b = (t - 1) * (1 - rate)
        # The ratio of the densities is t at x with a y^2 - b y - t a = 0 for y = e^(x / noise^2).
        x = noise**2 * np.log((b + np.sqrt(b * b + 4 * t * a * a)) / (2 * a))
        at = [ndtr((centre - x) / noise) for centre in (1, 0, -1)]
        return np.maximum(rate * (at[0] - t * at[2]) + (1 - rate) * (1 - t) * at[1], 0.0)

    return Pair(stick)


def pure_pair(epsilon):
    """Randomised response dominates (Kairouz, Oh & Viswanath, arXiv 1311.0776)."""
    t = math.exp(epsilon)
    return Pair(lambda eps: np.maximum(t - np.exp(eps), 0) / (1 + t), kinks=(epsilon,))


def range_pair(epsilon):
    """Bounded range by itself: docs/explanation/bounded-range.md, Statement 1."""
    w = -math.expm1(-epsilon)
    return Pair(lambda eps: np.expm1(np.minimum((eps - epsilon) / 2, 0)) ** 2 / w)


def range_before(epsilon, rest):
    """Bounded range, then the rest, for the worst t: Statement 2 there (Dong, Durfee & Rogers,
    arXiv 1909.13830). The largest value on a grid of t is a little below the supremum."""
    t = np.linspace(0.0, epsilon, 401)
    p = np.expm1(t - epsilon) / math.expm1(-epsilon)

    def worst_t(eps, way):
        return np.max(p * rest.at(eps - t, way) + (1 - p) * rest.at(eps - t + epsilon, way))

    sticks = [lambda eps, w=way: np.array([worst_t(e, w) for e in eps]) for way in (0, 1)]
    return Pair(*sticks)


def pair_of(cost, replace, fine=1.0):
    """Returns the pair of a composition, adaptive or not (Zhu, Dong & Wang, arXiv 2106.08567v4,
    Theorem 10; docs/explanation/budget.md). A larger ``fine`` takes a finer grid."""
    first = next(iter(cost), ("none",))  # What came before a choice may decide its t.
    if first[0] == "range" and cost[first] == 1 and len(cost) > 1:
        rest = {part: n for part, n in cost.items() if part != first}
        return range_before(first[1], pair_of(rest, replace, fine))
    plain = {part: n for part, n in cost.items() if part[0] == "gaussian" and part[1] == 1.0}
    cost = {part: n for part, n in cost.items() if part not in plain}
    pairs = [(pair_of_part(part, replace, fine), n) for part, n in cost.items()]
    if plain:  # Gaussians together are one: Dong, Roth & Su, arXiv 1905.02383v3, Corollary 3.3.
        moved = 2.0 if replace else 1.0  # A replaced record moves a sum by two contributions.
        noise = sum(n * (moved / part[2]) ** 2 for part, n in plain.items()) ** -0.5
        pairs.append((Pair(lambda eps: gaussian_stick(eps, noise)), 1))
    if len(pairs) == 1 and pairs[0][1] == 1:
        return pairs[0][0]
    # The grid follows the losses of one application: 2.5 H(0) is about their standard deviation.
    variance = sum(n * (2.5 * pair.larger(0.0)) ** 2 for pair, n in pairs)
    tops = [pair.top() for pair, _ in pairs]
    step = 0.02 * math.sqrt(variance / sum(n for _, n in pairs)) / fine
    step = max(step, max(tops) / 300_000)
    sticks = []
    for way in (0, 1):
        whole_pmf = None
        for (pair, n), top in zip(pairs, tops, strict=True):
            at = np.arange(-math.ceil(top / step), math.ceil(top / step) + 1)
            h = np.minimum.accumulate(np.clip(pair.at(at * step, way), 0, 1))
            # Doroshenko et al., arXiv 2207.04380v1: never below the mechanism.
            pmf = pld_pmf.create_pmf_pessimistic_connect_dots(step, at, h).to_dense_pmf()
            pmf = pmf.self_compose(n) if n > 1 else pmf
            whole_pmf = pmf if whole_pmf is None else whole_pmf.compose(pmf)
        sticks.append(read(whole_pmf, 2e-13 + 2e-16 * sum(n for _, n in pairs)))
    return Pair(*sticks)


def read(pmf, lost):
    """Returns what ``pmf.get_delta_for_epsilon`` does, for all losses at once, and between them a
    line in e^eps, which H is there. ``lost`` is what Fourier transforms may take away."""
    losses = (pmf._lower_loss + np.arange(pmf.size)) * pmf._discretization
    sure = pmf._infinity_mass + pmf._probs[losses >= 2 * LARGEST_EPSILON].sum()
    kept = (losses >= 0) & (losses < 2 * LARGEST_EPSILON)
    losses, mass = losses[kept], pmf._probs[kept]
    above = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
    prime = np.append(np.cumsum((mass * np.exp(-losses))[::-1])[::-1], 0.0)
    t = np.append(1.0, np.exp(losses))
    h = sure + np.append(above[0] - prime[0], above[1:] - t[1:] * prime[1:])
    h = np.minimum(h + lost, 1.0)
    return lambda eps: np.interp(np.exp(np.minimum(eps, 2 * LARGEST_EPSILON)), t, h)


def pair_of_part(part, replace, fine):
    if part[0] == "gaussian":
        return (sampled_pair_replaced if replace else sampled_pair)(*part[1:])
    if part[0] == "selection":
        return Selection(part, replace).pair_of_the_best()
    if part[0] == "worst":  # The larger hockey stick, at every epsilon and in each way.
        each = [pair_of(dict(cost), replace, fine) for cost in part[1]]
        sticks = [lambda eps, w=way: np.max([p.at(eps, w) for p in each], 0) for way in (0, 1)]
        return Pair(*sticks)
    return {"pure": pure_pair, "range": range_pair}[part[0]](part[1])


def epsilon_at(delta, stick):
    """The smallest epsilon with stick(epsilon) <= delta, by bisection."""
    low, high = 0.0, 1e-3
    while stick(high) > delta:
        low, high = high, 1.5 * high
        if low > LARGEST_EPSILON:
            return math.inf
    while high - low > 1e-7 * high and high > 1e-9:
        middle = (low + high) / 2
        low, high = (low, middle) if stick(middle) <= delta else (middle, high)
    return high


# -- 3. Selection: the best of T runs, T secret ---------------------------------------------------


class Law:
    """The law of T. For a set of outputs of mass p, miss(p) = E[(1-p)^T] is the chance that no run
    lands in it, and slope(p) = phi'(1-p). Also E[T], none = P[T = 0] and the largest T."""

    def __init__(self, data):
        base = data.get("base", data)
        name, self.most, self.none, self.shape = base["law"], math.inf, 0.0, None
        k = np.arange(whole(data["n"], 2000)) if base is not data else np.zeros(1)
        if name in ("geometric", "logarithmic", "negative_binomial"):
            # Papernot & Steinke, arXiv 2110.03620v2, Definition 1.
            g = min(number(base["gamma"], 1e-300, 1), 1 - 1e-12)
            named = {"geometric": 1.0, "logarithmic": 0.0}
            self.shape = r = number(named.get(name, base.get("shape")), -1, 1e6)

            def f(x):
                return -np.log(x) if r == 0 else (x**-r - 1) / r

            self.miss = lambda p: f(g + (1 - g) * p) / f(g)
            self.slope = lambda p: (1 - g) * (g + (1 - g) * p) ** -(1 + r) / f(g)
            chosen = gammaln(np.maximum(k, 1) + r) - gammaln(1 + r) - gammaln(k + 1)
            pmf = np.where(k > 0, np.exp(k * math.log1p(-g) + chosen) / f(g), 0.0)
        elif name == "poisson":
            m = number(base["mean"], 0, 1e6)
            self.none = math.exp(-m)
            self.miss = lambda p: np.exp(-m * p)
            self.slope = lambda p: m * np.exp(-m * p)
            pmf = np.exp(k * math.log(m) - m - gammaln(k + 1))
        elif name == "binomial" and base is data:
            n, rate = whole(base["n"]), number(base["mean"], 0, base["n"]) / base["n"]
            self.most, self.none = n, (1 - rate) ** n
            self.miss = lambda p: (1 - rate * p) ** n
            self.slope = lambda p: n * rate * (1 - rate * p) ** (n - 1)
        else:
            raise CannotJudge(f"it does not know the law {name!r} of the number of runs")
        self.mean = float(self.slope(0.0))
        if abs(self.mean / base.get("mean", self.mean) - 1) > 1e-6:
            raise Contradiction(f"the law's mean is {base['mean']}, {self.mean} by its gamma")
        if base is not data:  # min(T, n): no formula, but a finite sum
            pmf = np.append(pmf, max(1 - pmf.sum(), 0.0))
            phi = np.polynomial.Polynomial(pmf)
            self.most, self.shape, self.none = data["n"], None, float(pmf[0])
            derivative = phi.deriv()
            self.miss, self.slope = (lambda p: phi(1 - p)), (lambda p: derivative(1 - p))
            self.mean = float(self.slope(0.0))


class Selection:
    """Bounds on the best of T runs: Theorem 12 (docs/explanation/rank-profile.md) from above, an
    attack (docs/explanation/profile-bound.md) from below."""

    def __init__(self, part, replace):
        _, run, law, self.c, self.big, self.policy, _ = part
        self.run, self.law, self.replace = dict(run), Law(json.loads(law)), replace
        self.pair = pair_of(self.run, replace, 2.0)
        self.sides = [self.cells(way) for way in (0, 1)]

    def masses(self, way, eps):
        """Of the lower hull of the points (e^eps, H): the jumps of its slope, and its last H."""
        t, h = np.exp(eps), self.pair.at(eps, way)
        hull = [0]
        for i in range(1, eps.size):
            while len(hull) > 1:
                a, b = hull[-2:]
                if (h[b] - h[a]) * (t[i] - t[b]) < (h[i] - h[b]) * (t[b] - t[a]):
                    break
                hull.pop()
            hull.append(i)
        slopes = np.append(np.diff(h[hull]) / np.diff(t[hull]), 0.0)
        jumps = np.zeros(eps.size)
        jumps[hull[1:]] = np.diff(slopes)
        return jumps[1:], float(h[hull[-1]])

    def cells(self, way):
        """Theorem 11 makes a pair (O, O') of finitely many losses that dominates a run. Returns
        what Theorem 12 needs of it: for each cell of ranks, from a to a + width, its rate e^-loss,
        and gain and cost for masses q of other outputs above it."""
        top = self.pair.top()  # Rare large losses stretch it: most points lie lower.
        scales = [np.linspace(0.0, top / divisor, 150) for divisor in (1, 3, 9, 27)]
        eps = np.unique(np.concatenate([*scales, self.pair.kinks]))
        (ahead, infinite), (back, null) = self.masses(way, eps), self.masses(1 - way, eps)
        losses = np.append(eps[::-1], -eps[1:])
        mass = np.concatenate([(ahead * np.exp(eps[1:]))[::-1], [0.0], back])  # under O
        prime = np.concatenate([ahead[::-1], [0.0], back * np.exp(eps[1:])])  # under O'
        mass[eps.size - 1] = max(1 - infinite - mass.sum(), 0.0)  # of loss 0: what is left
        prime[eps.size - 1] = max(1 - null - prime.sum(), 0.0)
        ranks, least = infinite + np.append(0, np.cumsum(mass)), np.append(0, np.cumsum(prime))
        # Points where the gain has fallen by 3 %, and others; closer ones where losses are few.
        fine = np.append(np.logspace(-12, -2, 2000), np.linspace(0.01, 1, 20_000))
        depth = -np.log(np.maximum(self.law.slope(fine) / self.law.mean, 1e-17))
        fall = max(0.005 if self.pair.kinks else 0.03, depth[-1] / 1000)
        falls = np.interp(np.arange(0.0, depth[-1], fall), depth, fine)
        cuts = np.concatenate([ranks, falls, np.linspace(0, 1, 100), np.logspace(-9, 0, 50)])
        cuts = np.unique(np.clip(cuts, infinite, ranks[-1]))
        a, width = cuts[:-1, None], np.diff(cuts)
        atom = np.clip(np.searchsorted(ranks, cuts[:-1] + width / 2) - 1, 0, mass.size - 1)
        q = np.minimum(np.concatenate([falls, np.logspace(-12, 0, 150), [0.0]]), 1 - a)
        near_all = (1 - a) * (1 - np.append(np.logspace(-9, 0, 100), 0.0))
        q = np.sort(np.concatenate([q, near_all], axis=1), axis=1)
        # G(q) is the most that outputs of O-mass q have under O'; those of rank a have the least.
        most = np.append(0.0, np.cumsum(mass[::-1])), null + np.append(0.0, np.cumsum(prime[::-1]))
        p, prime_p = a + q, np.minimum(np.interp(a, ranks, least) + np.interp(q, *most), 1.0)
        c, big = self.c, self.big
        gain = big * self.law.slope(np.clip(np.maximum(c * p, 1 - big * (1 - p)), 0, 1))
        hi = np.minimum(big * prime_p, 1 - c * (1 - prime_p))
        cost = c * self.law.slope(np.clip(hi + 1e-15, 0, 1))
        # Lemma (points): in a cell of q the gain is below its chord, and the cost above the line
        # through the two points after the cell. Where the gain has a bend, both take steps.
        span = np.maximum(np.diff(q), 1e-300)
        rise = (cost[:, 1:-1] - cost[:, 2:]) / span[:, 1:] * span[:, :-1]
        bend = (big - 1) / (big - c) if big > c else 2.0
        rise[(p[:, :-2] < bend) & (bend < p[:, 1:-1])] = 0.0
        low = np.concatenate([cost[:, 1:-1] + np.maximum(rise, 0), cost[:, -1:], cost[:, -1:]], 1)
        return infinite, width, np.exp(-losses[atom]), gain, np.minimum(low, cost), (ranks, least)

    def upper(self, eps, way):
        infinite, width, rate, gain, cost, _ = self.sides[way]
        best = np.max(gain - math.exp(eps) * rate[:, None] * cost, axis=1)
        return min(infinite * self.big * self.law.mean + float(width @ np.maximum(best, 0)), 1.0)

    def larger(self, eps):
        return max(self.upper(eps, way) for way in (0, 1))

    def attack(self, eps):
        """On top the least incriminating outputs, then the most incriminating ones, of rank i; all
        others, those of ranks i to j, below. The winner is of rank i with the chance returned."""

        def chances(ranks):
            j, i = np.clip(ranks[None, ::3], 0, 1), np.clip(ranks[::3, None], 0, 1)
            return np.triu(self.law.miss(1 - j) - self.law.miss(np.minimum(1 - j + i, 1)))

        t, lost = math.exp(eps), 1e-14 * max(1.0, self.law.mean)
        pairs = [map(chances, side[-1]) for side in self.sides]
        return max(float(np.max(mine - t * (other + lost))) for mine, other in pairs)

    def pair_of_the_best(self):
        """For what is composed with it."""
        if self.law.none or self.policy == "history":
            raise CannotJudge("it composes no selection of this kind with a training")
        x = np.linspace(0.0, LARGEST_EPSILON, 400)
        h = [np.minimum.accumulate([self.upper(e, way) for e in x]) for way in (0, 1)]
        # H is convex in e^eps: its chords are not below it.
        return Pair(
            *(lambda eps, v=v: np.interp(np.exp(np.minimum(eps, x[-1])), np.exp(x), v) for v in h)
        )

    def others(self, delta):
        """Epsilon by the bounds that may be smaller than Theorem 12."""
        law, found = self.law, {}
        if law.most <= 8 and self.policy != "data":  # docs/explanation/accountants.md, all_runs
            runs = pair_of(repeated(self.run, int(law.most)), self.replace, 2.0)
            found["composition of all runs"] = epsilon_at(delta, runs.larger)
        kinds = {part[0] for part in self.run}
        if kinds == {"pure"}:  # The same page: 2 + eta, or the most runs, times epsilon + log C/c.
            total = sum(part[1] * n for part, n in self.run.items()) + math.log(self.big / self.c)
            found["pure DP"] = total * min(
                law.most, math.inf if law.shape is None else 2 + law.shape
            )
        return found


# -- 4. The file ----------------------------------------------------------------------------------


def no_twins(pairs):
    if len(dict(pairs)) < len(pairs):
        raise CannotJudge("a key stands in it twice")
    return dict(pairs)


class Report:
    def __init__(self):
        self.lines, self.differing = [], 0

    def check(self, holds, what, found):
        self.lines.append(f"{'agrees     ' if holds else 'DIFFERS    '} {what}: {found}")
        self.differing += not holds

    def unchecked(self, text):
        self.lines.append(f"not checked {text}")


# A signature is checked by optuna-dp verify --key.
_NOT_RELEASED = ("format", "version", "statement", "signature")


def compare_numbers(document, statement, report):
    """Compares what stands in the file more than once."""
    content, design = statement["content"], statement["design"]
    if document is not statement:
        rest = {k: v for k, v in document.items() if k not in _NOT_RELEASED}
        report.check(rest == content, "what is released", "the same in both places")
    tied = {"guarantee": statement["guarantee"], "design": design, "content": content}
    text = json.dumps(tied, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    report.check(digest == statement["digest"], "SHA-256", digest)
    settings = design["settings"]
    plan = settings.get("plan") or settings.get("run") or settings
    stated = statement["guarantee"]["neighboring_relation"]
    report.check(stated == plan.get("neighboring_relation", stated), "relation", stated)
    shown, law = content.get("disclosed_runs"), settings.get("trials", {})
    if shown is not None:  # Then it is no secret: T is charged for as exactly that number.
        is_known = law == {"law": "binomial", "n": shown, "mean": shown}
        report.check(is_known, "number of runs", f"{shown} shown, {law} charged for")
    group, person = statement["unit_with_several_records"], content.get("spending", {})
    most = (person.get("person") or content.get("description") or {}).get("most") or 1
    if group is not None or (most > 1 and statement["unit"] == "record"):
        charged = None if group is None else group["records"]
        found = f"{most} at most, {charged} charged for"
        report.check(charged == most, "records of one person", found)
    if "records" in plan and statement["protected_records"] and plan.get("score") != "disjoint":
        found = f"{plan['records']} in the plan, {statement['protected_records']} stated"
        report.check(plan["records"] == statement["protected_records"], "records", found)
    if design["procedure"] != "budget":
        report.check(
            design["seeded"] is False,
            "seed",
            "none was set" if not design["seeded"] else "one was set, and the choice is no secret",
        )
        return
    sizes = [rung["count"] for rung in plan["rungs"]]
    pilots = [pilot["rung"] for pilot in content["attributes"].get("pilots", [])]
    shown = [pilots.count(i) for i in range(len(sizes))]
    fits = sum(shown) == len(pilots) and all(a <= b for a, b in zip(shown, sizes, strict=True))
    report.check(fits, "pilots", f"{shown} shown, {sizes} charged for")
    runs, charged = content.get("spending", {}).get("runs", 0), sum(sizes) + plan["final"]["count"]
    report.check(runs <= charged, "runs", f"{runs} gave an output, {charged} charged for")
    if plan["sample_rate"] and statement["protected_records"] and plan["score"] != "disjoint":
        records, said = plan["batch_size"] / plan["sample_rate"], statement["protected_records"]
        found = f"{records:.6g} from the plan, {said} stated"
        report.check(abs(records - said) <= 1e-6 * records, "records", found)


def compare_costs(statement, report):
    """Compares the plan's cost with the event's; returns the latter."""
    event, design = statement["guarantee"]["event"], statement["design"]
    cost = search = cost_of_event(event)
    if design["procedure"] == "private_selection" and design["settings"].get("run") is None:
        report.unchecked("the cost of one run: no plan says it, only the event")
    in_event = [dict(part[1]) for part in cost if part[0] == "selection"] or [{}]
    planned = cost_of_plan(design["procedure"], design["settings"], in_event[0])
    first = event["events"][0] if event["type"] == "ComposedDpEvent" else event
    if planned != cost and planned == cost_of_event(first):
        search = planned
        report.unchecked("the cost of the final training: no plan says it, only the event")
    elif design["procedure"] == "budget":
        plan, claimed = design["settings"]["plan"], statement["epsilon"]
        if plan["delta"] == statement["delta"]:
            found = f"{plan['epsilon']:g} at most, {claimed:.6g} claimed"
            report.check(claimed <= plan["epsilon"], "planned epsilon", found)
    apart = sorted(set(planned.items()) ^ set(search.items()), key=str)
    found = f"one of them alone has {apart}" if apart else "the same"
    report.check(not apart, "cost by the plan and by the event", found)
    return cost


def compare_epsilon(statement, cost, report):
    """Computes epsilon and compares it. Returns why that is impossible, or None."""
    claimed, delta = statement["epsilon"], number(statement["delta"], 0, 0.5)
    claimed = math.inf if claimed is None else number(claimed, -1, math.inf)
    relation, attack = statement["guarantee"]["neighboring_relation"], statement["attack"]
    if relation not in ("add_or_remove_one", "replace_one"):
        return f"it does not know the relation {relation!r}"
    replace = relation == "replace_one"
    # The attack is not rounded to one side: a Fourier transform moves it by some 1e-11 of itself.
    is_below = attack <= claimed * (1 + 1e-9)
    report.check(is_below, "the file's attack", f"{attack:.6g} is not above its epsilon")
    (part, times), *more = cost.items() or [(("none",), 1)]
    if part[0] == "none":
        return "it charges for nothing"
    if part[0] == "selection" and times == 1 and not more:
        chosen = Selection(part, replace)
        stick, low = chosen.larger, epsilon_at(delta, chosen.attack)
        names = {"Theorem 12": epsilon_at(delta, stick)}
        low = min(low, LARGEST_EPSILON)
        report.check(claimed >= low * 0.99, "above the attack here", f"{low:.6g}")
        if claimed < names["Theorem 12"] * (1 - BELOW):
            names |= chosen.others(delta)
        if chosen.policy == "history" and claimed < min(names.values()) * (1 - BELOW):
            report.unchecked(
                f"epsilon: {claimed:.6g} is claimed. A policy that sees the data would cost "
                f"{names['Theorem 12']:.6g} at most, one that never adapts {low:.6g} at least"
            )
            return "there is no second verifier of the history bound (Theorem 3) of DP-HyPO"
    else:
        coarse, fine = (pair_of(cost, replace, fineness) for fineness in (1.0, 2.0))
        stick, names = fine.larger, {"composition": epsilon_at(delta, fine.larger)}
        if names["composition"] < math.inf and all(p[0] != "selection" for p in cost):
            error = abs(epsilon_at(delta, coarse.larger) - names["composition"])
            low = names["composition"] * (1 - 1e-5) - error
            report.check(claimed >= low, "above the lower estimate", f"{low:.6g}")
    name = min(names, key=names.get)
    mine = names[name]
    if claimed < mine * (1 - BELOW) and statement["method"] == "rdp":
        return f"the file uses a Renyi bound, and the bounds here say {mine:.6g}"
    if max(mine, claimed, names.get("Theorem 12", 0.0)) > LARGEST_EPSILON:
        return f"epsilon may be above {LARGEST_EPSILON:g}, where doubles do not suffice"
    percent = 100 * (claimed / mine - 1)
    found = f"{claimed:.6g} claimed, {mine:.6g} here by its own {name} ({percent:+.3f} %; grids "
    "differ)"
    if mine * (1 - FAR_BELOW) - LITTLE <= claimed < mine * (1 - BELOW):
        report.unchecked(f"epsilon: {found}")
        return "its epsilon is a little below what this program can prove, and may be right"
    is_equal = mine * (1 - BELOW) <= claimed <= mine * (1 + ABOVE) + LITTLE
    report.check(is_equal, f"epsilon at delta {delta:g}", found)
    group = statement["unit_with_several_records"]
    if group is None or group["epsilon"] is None:
        return None
    if name not in ("Theorem 12", "composition"):
        report.unchecked(f"epsilon of {group['records']} records: {name} has no such step here")
    else:
        # k steps of eps add up to k eps, and to delta (1 + e^eps + ... + e^((k-1) eps)): Vadhan,
        # The Complexity of Differential Privacy, 2017, Lemma 2.2.
        steps = np.arange(whole(group["records"]))
        mine = steps.size * epsilon_at(delta, lambda eps: stick(eps) * np.exp(steps * eps).sum())
        found = f"{group['epsilon']:.6g} claimed, {mine:.6g} here"
        report.check(group["epsilon"] >= mine * (1 - BELOW), f"{steps.size} records", found)
    return None


def main(path):
    report, why_not = Report(), None
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file, object_pairs_hook=no_twins)
        statement = document.get("statement", document)
        if (statement["format"], statement["version"]) != ("optuna-dp privacy statement", 1):
            raise CannotJudge("it is of a version that this program does not read")
        compare_numbers(document, statement, report)
        why_not = compare_epsilon(statement, compare_costs(statement, report), report)
    except Contradiction as found:
        report.check(False, "the file", found)
    except CannotJudge as reason:
        why_not = str(reason)
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        why_not = f"it is not the JSON of a release ({type(error).__name__}: {error})"
    print("\n".join(report.lines))
    if report.differing:
        print(f"DIFFERS in {report.differing} of {len(report.lines)} lines. Do not sign.")
        return 1
    if why_not is not None:
        print(f"CANNOT JUDGE this release: {why_not}.")
        return 2
    print("AGREES. Whether the runs took place as planned, no file can show.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
