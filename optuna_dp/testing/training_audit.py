"""Audits of one training: :func:`audit_training`, and what it finds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from dp_accounting import dp_event

from optuna_dp import validation
from optuna_dp.accounting.events import as_event, dp_sgd
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.testing import gradient_canaries as gradients
from optuna_dp.testing.finding import Finding
from optuna_dp.testing.objective_check import BATCHES, CLIPPING, NORMALISATION, check_training
from optuna_dp.testing.stated_training import StatedTraining, training_in

Verdict = Literal["violates", "not refuted", "too weak to tell"]
_POWER_ENOUGH = 0.9
_BEFORE = "what was done with the data before the training was called"


@dataclass(frozen=True)
class TrainingAudit:
    """What an audit of one training found.

    Attributes:
        verdict: "violates" (the training is refuted, at ``confidence`` or by ``findings``), "not
            refuted" (nothing was found where something was looked for, and half the noise would
            have been found in nine of ten audits; see ``not_seen``), or "too weak to tell".
        epsilon: With the stated confidence, some step has the noise of a training that costs this
            at ``delta``. 0 if nothing is known.
        claimed: Epsilon of the stated event at ``delta``.
        delta: At this delta.
        confidence: 1 minus the chance that an honest training is said to violate.
        p_value: The largest chance of a result like this if the event is true.
        power: The chance to find out a training with half the stated noise.
        noise_multiplier: With the stated confidence, some step has at most this noise multiplier;
            inf if nothing is known.
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
    power: float
    noise_multiplier: float
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
        power = f"half the noise would be found out {self.power:.0%} of the time"
        if self.p_value > 1.0 - self.confidence:
            return f"{self.verdict}: {share}; {power}"
        bound = (
            f"by at least epsilon {self.epsilon:.3g} for {self.claimed:.3g}, with a noise "
            f"multiplier of at most {self.noise_multiplier:.3g}"
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
    access: Literal["gradients", "opacus"] = "gradients",
    canaries: int = 64,
    data: Any = None,
    delta: float = 1e-5,
    confidence: float = 0.999,
    neighboring_relation: str = "add_or_remove_one",
) -> TrainingAudit:
    """Looks for a violation of a training's event in one training, with many canaries.

    ``docs/how-to/audit.md`` says how to choose, and what an audit cannot show.

    Guarantees:
        * A training that is what ``event`` says is said to violate with probability at most
          ``1 - confidence``, however its canaries depend on each other.
        * With the stated confidence some step is less private than a Gaussian one of
          ``noise_multiplier``; ``epsilon`` is what the event costs with that noise in its place.
          :mod:`optuna_dp.testing.gradient_canaries`.

    Args:
        train: The training. With ``access="gradients"`` it is given a :class:`GradientCanaries`,
            on which it calls ``examples`` (or ``insert``) and ``observe`` in every step. With
            ``"opacus"`` it is called without arguments, and every Opacus optimizer in it gets
            canaries. With ``data``, it is given that as last argument.
        event: What the training costs. It has to hold one :func:`optuna_dp.dp_sgd`; a score beside
            it is left out.
        access: Where the canaries go: into gradients by hand, or into Opacus' optimizers.
        canaries: Of each step, from 1 to 10,000.
        data: An array or tensor of records, or several of equal length. The
            training is then run a few times more, also with one record replaced, to see how far
            that moves a step (:mod:`optuna_dp.testing.gradient_steps`), who joins the batches,
            fixed seeds and early stops. What is found so is no matter of chance, but for batches
            (below 1e-7).
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
        >>> def train(canaries):  # a tenth of the noise that the event states
        ...     for _ in range(100):
        ...         summed = canaries.insert(np.zeros(80), 1.0)
        ...         canaries.observe(summed + 0.1 * rng.normal(size=80))
        >>> event = odp.dp_sgd(noise_multiplier=1.0, sample_rate=0.1, steps=100)
        >>> audit_training(train, event).verdict
        'violates'
    """
    if access not in ("gradients", "opacus"):
        raise InvalidArgumentError("access", access, "it must be 'gradients' or 'opacus'")
    validation.open_unit("delta", delta)
    error = 1.0 - validation.open_unit("confidence", confidence)
    guarantee = Guarantee(as_event("event", event), neighboring_relation)
    stated_training = training_in(event)
    gradient_canaries = gradients.GradientCanaries(canaries)
    arguments = () if data is None else (data,)
    if access == "opacus":
        from optuna_dp.testing.opacus_canaries import canaries_in_opacus  # an extra

        with canaries_in_opacus(gradient_canaries):
            train(*arguments)
    else:
        train(gradient_canaries, *arguments)
    result = _by_gradients(gradient_canaries, stated_training, guarantee, delta, error)
    if data is None:
        gaps = [
            CLIPPING if not gradient_canaries.before_clipping else NORMALISATION,
            BATCHES,
            "fixed seeds",
        ]
        findings: tuple[Finding, ...] = ()
    else:
        findings, gaps = check_training(train, event, data, opacus=access == "opacus")
    if gradient_canaries.longer:
        findings = (_of_long_canaries(gradient_canaries.longer), *findings)
    certain = any(finding.certain for finding in findings)
    return replace(
        result,
        verdict="violates" if certain else result.verdict,
        findings=findings,
        not_seen=(*gaps, _BEFORE),
    )


def _of_long_canaries(length: float) -> Finding:
    return Finding(
        "clipping",
        f"A made-up record moves the sum by {length:.3g} clipping norms along one coordinate.",
        "Clip the gradient of each record by one norm over all layers, the biases too.",
    )


def _by_gradients(
    canaries: gradients.GradientCanaries,
    stated_training: StatedTraining,
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
    shares, noise = np.array(canaries.shares), stated_training.noise_multiplier
    log_p = -float(gradients.log_wealth(shares, gradients.best_chance(noise)))
    power = gradients.power(canaries.counts, noise, noise / 2, error)
    at_most = gradients.noise_at_most(shares, error)
    epsilon = 0.0
    if math.isfinite(at_most):
        # What else the event holds (a score, say) was not audited and is left out.
        training_event = dp_sgd(
            noise_multiplier=at_most,
            sample_rate=stated_training.sample_rate,
            steps=stated_training.steps,
        )
        epsilon = Guarantee(training_event, guarantee.neighboring_relation).epsilon(delta)
    claim = dp_sgd(
        noise_multiplier=noise,
        sample_rate=stated_training.sample_rate,
        steps=stated_training.steps,
    )
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


def _verdict(violates: bool, power: float) -> Verdict:
    if violates:
        return "violates"
    return "not refuted" if power >= _POWER_ENOUGH else "too weak to tell"
