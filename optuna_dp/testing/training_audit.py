"""Audits of one training: :func:`audit_training`, and what it finds."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from dp_accounting import dp_event

from optuna_dp import validation
from optuna_dp.accounting.events import as_event, dp_sgd
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.testing import gradient_canaries as gradients
from optuna_dp.testing import guessing_bound
from optuna_dp.testing.objective_check import BATCHES, CLIPPING, NORMALISATION, check_training
from optuna_dp.testing.objective_faults import Finding
from optuna_dp.testing.stated_training import StatedTraining, training_in

Verdict = Literal["violates", "not refuted", "too weak to tell"]
Included = npt.NDArray[np.bool_]

# Guesses about all canaries, or about the most telling of them only. Which share tells most
# depends on the training, so several are tried, each with its part of the error.
_SHARES_GUESSED = (1.0, 0.5, 0.2, 0.1, 0.05)
_POWER_ENOUGH = 0.9
_MOST_CANARIES = 20_000
_BEFORE = "what was done with the data before the training was called"


@dataclass(frozen=True)
class TrainingAudit:
    """What an audit of one training found.

    Attributes:
        verdict: "violates" (the training is refuted, at ``confidence`` or by ``findings``), "not
            refuted" (nothing was found where something was looked for, and half the noise would
            have been found in nine of ten audits; see ``not_seen``), or "too weak to tell".
        epsilon: With the stated confidence, the training costs more than this at ``delta``: see
            :func:`audit_training` for what that means in each way of auditing. 0 if nothing is
            known.
        claimed: Epsilon of the stated event at ``delta``.
        delta: At this delta.
        confidence: 1 minus the chance that an honest training is said to violate.
        p_value: The largest chance of a result like this if the event is true.
        power: The chance to find out a training with half the stated noise; None if it is not
            known.
        noise_multiplier: With gradient canaries: with the stated confidence, some step has at
            most this noise multiplier; inf if nothing is known. None for a black box.
        guesses: Guesses made.
        right: How many of them were right.
        findings: What was found beside the canaries; only with ``data``.
        not_seen: What the audit could not see, in words.
    """

    verdict: Verdict
    epsilon: float
    claimed: float
    delta: float
    confidence: float
    p_value: float
    power: float | None
    noise_multiplier: float | None
    guesses: int
    right: int
    findings: tuple[Finding, ...] = ()
    not_seen: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(
            [
                self._of_canaries(),
                *(f"{'FAULT' if f.certain else 'hint '} {f}" for f in self.findings),
                f"not seen: {'; '.join(self.not_seen)}.",
            ]
        )

    def _of_canaries(self) -> str:
        share = f"{self.right} of {self.guesses} guesses were right (p = {self.p_value:.2g})"
        power = (
            "how often half the noise would be found out is not known"
            if self.power is None
            else f"half the noise would be found out {self.power:.0%} of the time"
        )
        if self.p_value > 1.0 - self.confidence:
            return f"{self.verdict}: {share}; {power}"
        noise = (
            ""
            if self.noise_multiplier is None
            else f", with a noise multiplier of at most {self.noise_multiplier:.3g}"
        )
        bound = (
            f"by at least epsilon {self.epsilon:.3g} for {self.claimed:.3g}{noise}"
            if self.epsilon > self.claimed
            else f"of the claim's whole curve; its epsilon {self.claimed:.3g} alone stands"
        )
        return (
            f"violates, {bound}, at delta {self.delta:g} and {self.confidence:.0%} confidence: "
            f"{share}"
        )


def audit_training(
    train: Callable[..., Any],
    event: dp_event.DpEvent,
    *,
    access: Literal["scores", "gradients", "opacus"] = "scores",
    canaries: int | None = None,
    data: Any = None,
    half_noise: Callable[[Included], Any] | None = None,
    delta: float = 1e-5,
    confidence: float = 0.999,
    neighboring_relation: str = "add_or_remove_one",
) -> TrainingAudit:
    """Looks for a violation of a training's event in one training, with many canaries.

    ``docs/how-to/audit.md`` says how to choose, and what an audit cannot show.

    Guarantees:
        * A training that is what ``event`` says is said to violate with probability at most
          ``1 - confidence``, whatever it scores and however its canaries depend on each other.
        * ``"scores"``: with the stated confidence the training is not (epsilon', delta)-DP for any
          epsilon' below ``epsilon`` (Steinke, Nasr & Jagielski 2023, arXiv 2305.08846; the test
          against the event's whole curve is that of Mahloujifar, Melis & Chaudhuri, arXiv
          2410.22235). :mod:`optuna_dp.testing.guessing_bound`.
        * ``"gradients"``, ``"opacus"``: with the stated confidence some step is less private than
          a Gaussian one of ``noise_multiplier``; ``epsilon`` is what the event costs with that
          noise in its place. :mod:`optuna_dp.testing.gradient_canaries`.

    Args:
        train: With ``access="scores"``, it is given which canaries are in, shape (canaries,),
            trains on them and on any other records, and returns a score for every canary: higher
            where it looks more like one trained on (minus its loss, say). With ``"gradients"`` it
            is given a :class:`GradientCanaries`, on which it calls ``examples`` (or ``insert``)
            and ``observe`` in every step. With ``"opacus"`` it is called without arguments, and
            every Opacus optimizer in it gets canaries. With ``data``, it is given that as last
            argument.
        event: What the training costs. For gradients it has to hold one :func:`optuna_dp.dp_sgd`;
            a score beside it is left out.
        access: What the audit sees. Gradients tell far more than scores do.
        canaries: Of the training (default 1000, at most 20,000), or of each step of gradients
            (default 64, at most 10,000).
        data: For gradients: an array or tensor of records, or several of equal length. The
            training is then run a few times more, also with one record replaced, to see how far
            that moves a step (:mod:`optuna_dp.testing.gradient_steps`), who joins the batches,
            fixed seeds and early stops. What is found so is no matter of chance, but for batches
            (below 1e-7).
        half_noise: For scores: the same training with half the noise, called four times to
            measure the power. Without it, what is not refuted is "too weak to tell".
        delta: In (0, 1); for ``epsilon`` and ``claimed``.
        confidence: In (0, 1).
        neighboring_relation: "add_or_remove_one" or "replace_one", as of the event.

    Raises:
        InvalidArgumentError: If an argument is not allowed, or ``train`` does not do its part.
        MissingExtraError: If ``access`` is "opacus" and Opacus is not installed.

    Example:
        >>> import numpy as np, optuna_dp as odp
        >>> from optuna_dp.testing import audit_training
        >>> rng = np.random.default_rng()
        >>> def release_sums(included):  # a Gaussian mechanism with noise 0.2, not 2
        ...     return included + 0.2 * rng.normal(size=included.size)
        >>> audit_training(release_sums, odp.gaussian(2.0)).verdict
        'violates'
    """
    if access not in ("scores", "gradients", "opacus"):
        raise InvalidArgumentError(
            "access", access, "it must be 'scores', 'gradients' or 'opacus'"
        )
    validation.open_unit("delta", delta)
    error = 1.0 - validation.open_unit("confidence", confidence)
    guarantee = Guarantee(as_event("event", event), neighboring_relation)
    if access == "scores":
        if data is not None:
            raise InvalidArgumentError("data", type(data).__name__, "it is for gradients only")
        count = validation.whole("canaries", 1000 if canaries is None else canaries, 10)
        if count > _MOST_CANARIES:
            raise InvalidArgumentError(
                "canaries", count, f"it must be at most {_MOST_CANARIES}: more tell no more"
            )
        return _by_scores(train, guarantee, count, half_noise, delta, error)
    if half_noise is not None:
        raise InvalidArgumentError(
            "half_noise", half_noise, "it is for access='scores'; with gradients it is computed"
        )
    stated = training_in(event)
    given = gradients.GradientCanaries(
        validation.whole("canaries", 64 if canaries is None else canaries, 1)
    )
    arguments = () if data is None else (data,)
    if access == "opacus":
        from optuna_dp.testing.opacus_canaries import canaries_in_opacus  # an extra

        with canaries_in_opacus(given):
            train(*arguments)
    else:
        train(given, *arguments)
    found = _by_gradients(given, stated, guarantee, delta, error)
    if data is None:
        unseen = [CLIPPING if not given.before_clipping else NORMALISATION, BATCHES, "fixed seeds"]
        findings: tuple[Finding, ...] = ()
    else:
        findings, unseen = check_training(train, event, data, opacus=access == "opacus")
    if given.longer:
        findings = (_of_long_canaries(given.longer), *findings)
    certain = any(finding.certain for finding in findings)
    return replace(
        found,
        verdict="violates" if certain else found.verdict,
        findings=findings,
        not_seen=(*unseen, _BEFORE),
    )


def _of_long_canaries(length: float) -> Finding:
    return Finding(
        "clipping",
        f"A made-up record moves the sum by {length:.3g} clipping norms along one coordinate.",
        "Clip the gradient of each record by one norm over all layers, the biases too.",
    )


def _by_gradients(
    canaries: gradients.GradientCanaries,
    stated: StatedTraining,
    guarantee: Guarantee,
    delta: float,
    error: float,
) -> TrainingAudit:
    if not canaries.shares:
        raise InvalidArgumentError(
            "train",
            "no step",
            "no canary was in any step",
            "With access='opacus' the training has to call step() of an optimizer made by "
            "PrivacyEngine.make_private; with 'gradients', insert and observe.",
        )
    shares, noise = np.array(canaries.shares), stated.noise_multiplier
    log_p = -float(gradients.log_wealth(shares, gradients.best_chance(noise)))
    power = gradients.power(canaries.counts, noise, noise / 2, error)
    at_most = gradients.noise_at_most(shares, error)
    epsilon = 0.0
    if math.isfinite(at_most):
        # What else the event holds (a score, say) was not audited and is left out.
        found = dp_sgd(
            noise_multiplier=at_most, sample_rate=stated.sample_rate, steps=stated.steps
        )
        epsilon = Guarantee(found, guarantee.neighboring_relation).epsilon(delta)
    claim = dp_sgd(noise_multiplier=noise, sample_rate=stated.sample_rate, steps=stated.steps)
    return TrainingAudit(
        verdict=_verdict(log_p <= math.log(error), power),
        epsilon=epsilon,
        claimed=Guarantee(claim, guarantee.neighboring_relation).epsilon(delta),
        delta=delta,
        confidence=1.0 - error,
        p_value=math.exp(min(0.0, log_p)),
        power=power,
        noise_multiplier=at_most,
        guesses=sum(canaries.counts),
        right=round(float(shares @ np.array(canaries.counts))),
    )


def _by_scores(
    train: Callable[[Included], Any],
    guarantee: Guarantee,
    count: int,
    half_noise: Callable[[Included], Any] | None,
    delta: float,
    error: float,
) -> TrainingAudit:
    lines = guessing_bound.lines_of(guarantee.delta)
    each = error / len(_SHARES_GUESSED)

    def p_values(training: Callable[[Included], Any]) -> list[tuple[float, int, int]]:
        return [
            (guessing_bound.p_value(right, made, count, lines), made, right)
            for made, right in _guesses(training, count)
        ]

    found = p_values(train)
    best, made, right = min(found)
    power = None
    if half_noise is not None:
        caught = [min(p_values(half_noise))[0] <= each for _ in range(4)]
        power = sum(caught) / len(caught)
    epsilon = max(
        guessing_bound.refuted_epsilon(right, made, count, delta=delta, error=each)
        for _, made, right in found
    )
    return TrainingAudit(
        verdict=_verdict(best <= each, power),
        epsilon=epsilon,
        claimed=guarantee.epsilon(delta),
        delta=delta,
        confidence=1.0 - error,
        p_value=min(1.0, best * len(_SHARES_GUESSED)),
        power=power,
        noise_multiplier=None,
        guesses=made,
        right=right,
        not_seen=("whatever the scores of these canaries do not show", _BEFORE),
    )


def _guesses(train: Callable[[Included], Any], count: int) -> list[tuple[int, int]]:
    """Trains once; returns how many guesses were made, and how many right, for each share."""
    rng = np.random.default_rng(secrets.randbits(256))
    included = rng.random(count) < 0.5
    scores = _checked(train(included.copy()), count)
    # Ties are broken at random, never by what is to be guessed.
    shuffle = rng.permutation(count)
    order = shuffle[np.argsort(scores[shuffle], kind="stable")]
    found = []
    for share in _SHARES_GUESSED:
        half = max(1, int(share * count) // 2)
        right = int((~included[order[:half]]).sum() + included[order[-half:]].sum())
        found.append((2 * half, right))
    return found


def _checked(scores: Any, count: int) -> FloatArray:
    try:
        found = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.zeros(0)
    if found.shape != (count,) or np.isnan(found).any():
        raise InvalidArgumentError(
            "train",
            f"something of shape {found.shape}",
            f"it must return {count} numbers, a score for each canary, none of them NaN",
        )
    return found


def _verdict(violates: bool, power: float | None) -> Verdict:
    if violates:
        return "violates"
    return "not refuted" if power is not None and power >= _POWER_ENOUGH else "too weak to tell"
