"""Explicit attacks on adaptive selection: how much privacy a policy in [c, C] certainly costs.

The adversary owns everything the analysis leaves open: a space of two or three hyperparameters
lambda with prior masses w, the order of outputs, and the policy. Every run, whatever its lambda,
has the output laws of one *attainable* pair (O, O'). Outputs of lambda_i are labelled by their
privacy loss and ordered

    block   (its lowest losses, O-mass beta_i)   above
    event   (its highest losses, O-mass theta_i) above
    rest.

The attacker guesses D when the winner lies in the event E: there was no output in the block and at
least one in E. Two kinds of policy (``docs/explanation/history-bound.md``, "The attacks"):

* ``history``: block and event may each be of two parts, ranked block, event, block, event. The
  density is a function of the history's highest rank so far and of its log-likelihood ratio z,
  rounded to a lattice; found by dynamic programming. It runs the same on D and on D'. A(E) and
  A'(E) are then evaluated exactly, by running the two measures forward.
* ``data``: the density also knows the data set. It maximises A(E) on D and minimises A'(E) on D'.

Either way A(E) - e^eps A'(E) is a lower bound on delta of an explicit mechanism and policy; the
search over (beta, theta) can only make it weaker than it might be, never wrong.

============  ============  =================================================================
code          notation      meaning
============  ============  =================================================================
``vertices``  w_i pihat_i   probability of each lambda, at the extreme points of the policy set
``tops``      beta_i        O-masses of the blocks, the highest first
``events``    theta_i       O-masses of the parts of the event, the highest first
============  ============  =================================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.attacks.data_attack import search_data
from optuna_dp.attacks.history_search import search_history
from optuna_dp.attacks.selection_attack import SelectionAttack, strongest_attack
from optuna_dp.core import validation
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.selection.laws.base import TrialCount


@dataclass(frozen=True)
class PolicyAttack:
    """A reproducible attack on a selection with an adaptive policy, and what it proves.

    Attributes:
        epsilon: The selection is not (epsilon', delta)-DP for any epsilon' below this.
        delta: At this delta.
        policy: "history" or "data".
        direction: "forward" for (O, O') as the pair has them, "reverse" for (O', O).
        prior: Prior mass of each lambda.
        top_masses: beta_i, O-mass of lambda_i's outputs in each block, the highest rank first.
        event_masses: theta_i, O-mass of lambda_i's outputs in each part of the event likewise.
        plain: The attack without adaptivity, where no policy was found to be stronger (then the
            three fields before this one are empty).
    """

    epsilon: float
    delta: float
    policy: str
    direction: str
    prior: tuple[float, ...] = ()
    top_masses: tuple[tuple[float, ...], ...] = ()
    event_masses: tuple[tuple[float, ...], ...] = ()
    plain: SelectionAttack | None = None


def strongest_policy_attack(
    pair: DominatingPair,
    trials: TrialCount,
    density_bounds: tuple[float, float],
    delta: float,
    policy: Literal["history", "data"] = "history",
) -> PolicyAttack:
    """Returns the strongest attack found by a policy with densities in [c, C], both directions.

    Guarantees:
        * ``epsilon`` is reached by an explicit mechanism, policy and event, whose probabilities
          are computed exactly up to rounding (which is taken against the attacker).
        * It is never below the attack without adaptivity, which needs no policy.

    Args:
        pair: *Attainable* output laws of one run on D and on D'.
        trials: The law of T.
        density_bounds: (c, C), with 0 < c <= 1 <= C.
        delta: In (0, 1).
        policy: What the density may depend on.
    """
    c, big_c = density_bounds
    target = validation.open_unit("delta", delta)
    if policy not in ("history", "data"):
        raise InvalidArgumentError("policy", policy, allowed='it must be "history" or "data"')
    plain = strongest_attack(pair, trials, target)
    best = PolicyAttack(plain.epsilon, target, policy, plain.direction, plain=plain)
    if c == big_c or not math.isfinite(plain.epsilon) or not np.any(pair.mass > 0.0):
        return best
    for direction, one_way in (("forward", pair), ("reverse", pair.reversed())):
        if policy == "history":
            if direction != plain.direction:
                continue  # the larger of the two directions costs more, with and without a policy
            attack = search_history(one_way, trials, c, big_c, plain)
        else:
            attack = search_data(one_way, trials, c, big_c, target)
        if attack is not None and attack[0] > best.epsilon:
            best = PolicyAttack(attack[0], target, policy, direction, *attack[1:])
    return best
