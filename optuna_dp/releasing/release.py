"""A release: one choice, its guarantee, and the statement of it."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from optuna.distributions import BaseDistribution, distribution_to_json

from optuna_dp.accounting.events import compose
from optuna_dp.core import by_name
from optuna_dp.core.value_types import JsonObject
from optuna_dp.evidence.data_description import DataDescription
from optuna_dp.evidence.persons import person_epsilon
from optuna_dp.evidence.preparation import persons
from optuna_dp.releasing.markdown import statement_markdown
from optuna_dp.releasing.statement_data import statement_data
from optuna_dp.study.plan import Design

if TYPE_CHECKING:
    from dp_accounting import dp_event

    from optuna_dp.accounting.guarantee import Guarantee


@dataclass(frozen=True)
class Release:
    """What may be published of a study, and what is guaranteed of it.

    Guarantees:
        * The object, its JSON and its published study hold nothing of the winner but its
          hyperparameters, its score, the attributes and the artifact that are part of the run's
          output: no trial number, id, time or duration, and no count of runs.
        * :attr:`guarantee` holds for all of it together, with respect to the relation it names.

    Attributes:
        params: The chosen hyperparameters by name; None if no run succeeded (or T was 0), which
            is an outcome like any other. With a budget, those of the last run, even if it failed.
        value: The winner's score; None if ``params`` is, and where scores are not private
            (``ProposeTestSampler``, ``NoisyMaxSampler``), not charged for, or several.
        guarantee: The guarantee of the whole procedure, for one record or one client. Who has
            several records: :attr:`person_epsilon`.
        attributes: The winner's user attributes that were named as output, and what the procedure
            releases besides: the "pilots" of a budget; "last run" if there is something
            to say of it (that it failed, that a person chose it), and "values" with several
            objectives.
        artifact: The content of the winner's artifact, if it has one and a store was given.
        distributions: The distributions of the parameters.
        delta: The delta at which the statement gives epsilon.
        design: The public design of the search.
        training: The event of a final training composed on top, or None.
        disclosed_runs: How many runs had a chance to be chosen, where that is released and charged
            for (``release(study, failures="lost")``); None where it is secret, as a rule.
        description: What only people know (:func:`optuna_dp.describe`), or None.
        spending: What is known of what runs did. After ``BudgetSampler``: how many runs have an
            output ("runs"), how many of them asked what they may spend ("asked"), and of how many
            the "training" and the "score" are "enforced", "compared" or "not checked". Where the
            number of runs is secret, one of the three words for all of them. And what the curator
            vouches for ("vouched"), on how many disjoint private records the score was computed
            ("scored_records"), and how many private studies the storage held when this one was
            made ("older_studies").
    """

    params: dict[str, Any] | None
    value: float | None
    guarantee: Guarantee
    attributes: dict[str, Any] = field(default_factory=dict)
    artifact: bytes | None = field(default=None, repr=False)
    distributions: dict[str, BaseDistribution] = field(default_factory=dict, repr=False)
    delta: float = 1e-5
    design: Design = field(kw_only=True, repr=False)
    training: dp_event.DpEvent | None = field(default=None, kw_only=True, repr=False)
    disclosed_runs: int | None = field(default=None, kw_only=True, repr=False)
    description: DataDescription | None = field(default=None, kw_only=True, repr=False)
    spending: dict[str, Any] = field(default_factory=dict, kw_only=True, repr=False)

    @property
    def pilots(self) -> list[JsonObject]:
        """The outputs of pilots that are released, in their order; empty if there are none.

        After ``BudgetSampler`` always: each has its "rung" from 0, its "params", its
        "values" (one per objective; None if it has no score; "value" is the one of a single
        objective) and its "state", the name of an Optuna state. They are charged for and may be
        shown.
        """
        return list(self.attributes.get("pilots", []))

    @property
    def person_epsilon(self) -> float | None:
        """The epsilon for one person with all records, at :attr:`delta`, as the statement says it.

        A person has up to ``most`` records: as ``odp.Schema(..., unit="patient", most=3)`` kept
        them, or as :func:`optuna_dp.describe` says. It is by the bound for groups. None if nobody
        said how many records a person may have, and where clients are protected.
        ``guarantee.epsilon(delta)`` is for one record.
        """
        _, most = persons(self._content())
        return person_epsilon(self.guarantee, self.delta, most)

    def with_training(
        self,
        event: dp_event.DpEvent,
        *,
        value: float | None = None,
        artifact: bytes | None = None,
    ) -> Release:
        """Returns this release with a final training on the same data composed on top.

        One statement then covers the pipeline: the choice, the training with the chosen
        hyperparameters, and what of it is released.

        Args:
            event: What the training costs, and the score if ``value`` is given; see
                :func:`optuna_dp.dp_sgd` and :func:`optuna_dp.compose`. A vote among clients takes
                one that hides clients too: :func:`optuna_dp.per_client`.
            value: The trained model's score, if its cost is in ``event``; replaces :attr:`value`.
            artifact: The trained model; replaces :attr:`artifact`.

        Raises:
            InvalidArgumentError: If ``event`` is not an event, or about records where the release
                is about clients, or the other way round.
            UnsupportedEventError: If no accountant supports it.

        Example:
            >>> import optuna, optuna_dp as odp
            >>> study = optuna.create_study(
            ...     direction="maximize",
            ...     sampler=odp.NoisyMaxSampler(candidates=9, n_partitions=500, epsilon=1.0),
            ... )
            >>> study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
            >>> whole = odp.release(study).with_training(odp.gaussian(noise_multiplier=4))
            >>> 1.0 < whole.guarantee.epsilon(delta=1e-5) < 1.93
            True
        """
        search = self.search_guarantee
        training = event if self.training is None else compose(self.training, event)
        return replace(
            self,
            # In this order: the choice was made before the training, and cannot depend on it.
            guarantee=replace(search, event=compose(search.event, training)),
            training=training,
            value=self.value if value is None else value,
            artifact=self.artifact if artifact is None else artifact,
        )

    def statement(self) -> str:
        """Returns the privacy statement in Markdown."""
        return statement_markdown(self._statement())

    def to_json(self) -> JsonObject:
        """Returns the release as plain JSON values, its statement included.

        The artifact itself is not part of it, only its SHA-256. Numbers that JSON does not have
        are text: ``"inf"``, ``"-inf"``, ``"nan"``.
        """
        return {
            "format": "optuna-dp release",
            "version": 1,
            **self._content(),
            "statement": self._statement(),
        }

    def _repr_html_(self) -> str | None:
        return by_name.notebook_page(self)

    @property
    def search_guarantee(self) -> Guarantee:
        """The guarantee without the final training."""
        if self.training is None:
            return self.guarantee
        # As with_training made it: the search first.
        return replace(self.guarantee, event=self.guarantee.event.events[0])

    def _statement(self) -> JsonObject:
        """Returns the statement as plain JSON values."""
        return statement_data(
            self.guarantee,
            self.design,
            delta=self.delta,
            content=self._content(),
            training=self.training,
        )

    def _content(self) -> JsonObject:
        """Returns what is released, as plain JSON values."""
        artifact = self.artifact
        description = {} if self.description is None else self.description.to_json()
        return {
            "params": _as_json(self.params),
            "value": _as_json(self.value),
            "attributes": _as_json(self.attributes),
            "artifact_sha256": None if artifact is None else hashlib.sha256(artifact).hexdigest(),
            "distributions": {
                name: json.loads(distribution_to_json(distribution))
                for name, distribution in self.distributions.items()
            },
            **({"description": description} if description else {}),
            **({"spending": self.spending} if self.spending else {}),
            **({} if self.disclosed_runs is None else {"disclosed_runs": self.disclosed_runs}),
        }


def _as_json(value: object) -> object:
    """Returns a value as JSON has it, which knows no infinity and no NaN: they become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {name: _as_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    return value
