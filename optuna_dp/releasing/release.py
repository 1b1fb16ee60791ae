"""A release: one choice, its guarantee, and the statement of it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from optuna.distributions import BaseDistribution, distribution_to_json

from optuna_dp import parts
from optuna_dp.accounting.event_words import in_words
from optuna_dp.accounting.events import compose
from optuna_dp.evidence import preparation
from optuna_dp.evidence.markdown import Page, escaped, page_of, statement_markdown
from optuna_dp.evidence.procedures import description_of
from optuna_dp.evidence.statement import SAMPLING_ROW
from optuna_dp.evidence.statement_data import statement_data
from optuna_dp.protocol.plan import Design
from optuna_dp.releasing.data_description import NOT_STATED, DataDescription

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
        guarantee: The guarantee of the whole procedure.
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
            vouches for ("vouched"), and on how many disjoint private records the score was
            computed ("scored_records").
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
    def pilots(self) -> list[dict[str, Any]]:
        """The outputs of pilots that are released, in their order; empty if there are none.

        After ``BudgetSampler`` always: each has its "rung" from 0, its "params", its
        "values" (one per objective; None if it has no score; "value" is the one of a single
        objective) and its "state", the name of an Optuna state. They are charged for and may be
        shown.
        """
        return list(self.attributes.get("pilots", []))

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
        number = None
        if self.disclosed_runs is not None:
            number = (
                f"{self.disclosed_runs} runs could be chosen from. The number is revealed here, "
                "and the guarantee is that of the best of exactly so many. Vouched for: a block "
                "of other runs failed for a cause that does not depend on the data"
            )
        page = statement_page(
            self._statement(),
            self.design,
            self.search_guarantee,
            training=self.training,
            number_of_runs=number,
        )
        return statement_markdown(page)

    def to_json(self) -> dict[str, Any]:
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

    def to_registry(self, **entry: Any) -> str:
        """Returns an entry of OpenDP's registry of deployments, as YAML; a draft to finish.

        Args:
            entry: What only people know: ``name`` of the product, ``curator`` (by default the
                owner of :func:`optuna_dp.describe`) and ``curator_type`` ("Government",
                "Industry" or "Nonprofit"), ``intended_use`` (by default the purpose there),
                ``region``, ``published`` (a day, "2026-03-31"), ``authors`` of the entry; and
                optionally ``sector``.

        Raises:
            InvalidArgumentError: If something is missing, with all that is; or not allowed.
        """
        # Lazy: only entries need YAML.
        from optuna_dp.releasing.registry import to_registry

        return to_registry(self, **entry)

    def _repr_html_(self) -> str | None:
        return parts.notebook_page(self)

    @property
    def search_guarantee(self) -> Guarantee:
        """The guarantee without the final training."""
        if self.training is None:
            return self.guarantee
        # As with_training made it: the search first.
        return replace(self.guarantee, event=self.guarantee.event.events[0])

    def _statement(self) -> dict[str, Any]:
        """Returns the statement as plain JSON values."""
        procedure_words = description_of(self.design)
        content = self._content()
        unit, cap, _ = preparation.persons(content)
        return statement_data(
            self.guarantee,
            self.design,
            delta=self.delta,
            content=content,
            procedure_words=procedure_words,
            trained=self.training is not None,
            unit=unit,
            cap=cap,
        )

    def _content(self) -> dict[str, Any]:
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
        }


def statement_page(
    data: Mapping[str, Any],
    design: Design,
    search: Guarantee,
    *,
    training: dp_event.DpEvent | None = None,
    number_of_runs: str | None = None,
) -> Page:
    """Returns what a statement says, from its JSON and what is read from it.

    Args:
        data: The statement, as :func:`optuna_dp.evidence.statement_data.statement_data` made it.
        design: The design of the search.
        search: The guarantee of the search, without a final training.
        training: The event of a final training composed on top, or None.
        number_of_runs: What is said of the number of runs where it is revealed, or None.
    """
    content = data["content"]
    facts: dict[str, str] = {}
    if "description" in content:
        facts = DataDescription.from_json(content["description"]).facts()
    elif data["unit"] == "record":  # Of a vote, clients hold the records: nobody describes them.
        facts = DataDescription().facts()
    unit, cap, is_enforced = preparation.persons(content)
    if is_enforced:
        facts["A record belongs to"] = (
            f"enforced: one {escaped(str(unit))}; {cap} record{'s' * (cap != 1)} of each at most "
            "were used"
        )
    # What is charged for may have no batches at all, as in pure_dp(...).
    if facts.get(SAMPLING_ROW) == NOT_STATED and not _has_batches(data["guarantee"]["event"]):
        del facts[SAMPLING_ROW]
    words = description_of(design)
    facts |= words.facts(design, search)
    facts |= words.facts_of_release(design, content)
    if number_of_runs is not None:
        facts["Number of runs"] = number_of_runs
    for name in ("last run", "not covered"):
        if content["attributes"].get(name):
            facts[name.capitalize()] = str(content["attributes"][name])
    if training is not None:
        cost = in_words(training)
        facts["Final training"] = f"vouched for: {cost}; counted in the guarantee above"
    promises = words.all_promises(design, content, trained=training is not None)
    counts = words.record_counts(design, content.get("spending", {}))
    spending = content.get("spending", {})
    return page_of(
        data,
        facts,
        promises,
        counts.protected,
        road=preparation.road(spending),
        schema=preparation.schema_section(spending),
    )


def _has_batches(event: Any) -> bool:
    """Returns whether an event, as JSON, takes a random sample of the records anywhere."""
    if isinstance(event, list):
        return any(map(_has_batches, event))
    if not isinstance(event, dict):
        return False
    return "Sampled" in str(event.get("type")) or any(map(_has_batches, event.values()))


def _as_json(value: Any) -> Any:
    """Returns a value as JSON has it, which knows no infinity and no NaN: they become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {name: _as_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    return value
