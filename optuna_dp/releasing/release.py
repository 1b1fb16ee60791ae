"""The release: one choice and its guarantee."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from optuna.distributions import BaseDistribution, distribution_to_json

from optuna_dp.errors import InvalidArgumentError, ReleaseRefusedError
from optuna_dp.exports import export
from optuna_dp.protocol.plan import Design
from optuna_dp.protocol.records import RELEASED_KEY, is_ours, score
from optuna_dp.releasing.description import DataDescription, read_description
from optuna_dp.releasing.evidence import read_evidence
from optuna_dp.releasing.exact_scores import looks_exact, warn_of_scores
from optuna_dp.releasing.failures import longest_block, stand_together
from optuna_dp.releasing.procedures import description_of, procedure_of
from optuna_dp.releasing.run_record import RunRecord, read_run_record, write_run_record
from optuna_dp.releasing.runs import Evidence
from optuna_dp.releasing.statement import statement_data, statement_markdown
from optuna_dp.validation import open_unit

if TYPE_CHECKING:
    from dp_accounting import dp_event
    from optuna.artifacts._protocol import ArtifactStore
    from optuna.study import Study
    from optuna.trial import FrozenTrial

    from optuna_dp.accounting.guarantee import Guarantee

_logger = logging.getLogger("optuna_dp")


@dataclass(frozen=True)
class Release:
    """What may leave the room, and what is guaranteed of it.

    Guarantees:
        * The object, its JSON and its published study hold nothing of the winner but its
          hyperparameters, its score, the attributes and the artifact that are part of the run's
          output: no trial number, id, time or duration, and no count of runs.
        * :attr:`guarantee` holds for all of it together, with respect to the relation it names.

    Attributes:
        params: The chosen hyperparameters by name; None if no run succeeded (or T was 0), which
            is an outcome like any other. With a budget, those of the last run, even if it failed.
        value: The winner's score; None if ``params`` is, and where scores are not private
            (``ProposeTestSampler``, ``NoisyMaxSampler``), not paid for, or several.
        guarantee: The guarantee of the whole procedure.
        attributes: The winner's user attributes that were named as output, and what the procedure
            releases besides: the "pilots" of ``PilotSampler(plan=...)`` and of
            ``PilotSampler(release_pilots=True)``; with a plan, "last run" if there is something
            to say of it (that it failed, that a person chose it), and "values" with several
            objectives.
        artifact: The content of the winner's artifact, if it has one and a store was given.
        distributions: The distributions of the parameters.
        delta: The delta at which the statement gives epsilon.
        design: The public design of the search.
        training: The event of a final training composed on top, or None.
        runs_told: How many runs had a chance to be chosen, where that is released and charged
            for (``release(study, failures="lost")``); None where it is secret, as a rule.
        description: What only people know (:func:`optuna_dp.describe`), or None.
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
    runs_told: int | None = field(default=None, kw_only=True, repr=False)
    description: DataDescription | None = field(default=None, kw_only=True, repr=False)

    @property
    def pilots(self) -> list[dict[str, Any]]:
        """The outputs of pilots that are released, in their order; empty if there are none.

        After ``PilotSampler(plan=...)`` always: each has its "rung" from 0, its "params", its
        "values" (one per objective; None if it has no score; "value" is the one of a single
        objective) and its "state", the name of an Optuna state. They are paid for and may be
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
            UnsupportedEventError: If no accountant judges it.

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
        # Start-up time: dp-accounting is slow to load.
        from optuna_dp.accounting.events import compose

        found = self._search_guarantee()
        training = event if self.training is None else compose(self.training, event)
        return replace(
            self,
            guarantee=found.compose(training),
            training=training,
            value=self.value if value is None else value,
            artifact=self.artifact if artifact is None else artifact,
        )

    def statement(self) -> str:
        """Returns the privacy statement in Markdown."""
        described = description_of(self.design)
        facts = {} if self.description is None else self.description.facts()
        facts |= described.facts(self.design, self._search_guarantee())
        if self.runs_told is not None:
            facts["Number of runs"] = (
                f"{self.runs_told} had a chance to be chosen, which is told here and charged for "
                "as if it had been fixed. All runs of a block failed, for a reason that is no "
                "function of the data, as the curator vouches"
            )
        if self.training is not None:
            # Start-up time: dp-accounting is slow to load.
            from optuna_dp.accounting.event_words import in_words

            facts["Final training"] = f"{in_words(self.training)}; counted in the guarantee above"
        return statement_markdown(self._statement(), facts)

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
                optionally ``sector`` and ``product`` ("Machine learning model").

        Raises:
            InvalidArgumentError: If something is missing, with all that is; or not allowed.
        """
        return export("registry", self, **entry)

    def _repr_html_(self) -> str:
        return export("page", self)

    def _content(self) -> dict[str, Any]:
        """What is released, as plain JSON values."""
        digest = None if self.artifact is None else hashlib.sha256(self.artifact).hexdigest()
        described = {} if self.description is None else self.description.to_json()
        return {
            "params": _as_json(self.params),
            "value": _as_json(self.value),
            "attributes": _as_json(self.attributes),
            "artifact_sha256": digest,
            "distributions": {
                name: json.loads(distribution_to_json(distribution))
                for name, distribution in self.distributions.items()
            },
            **({"description": described} if described else {}),
        }

    def _search_guarantee(self) -> Guarantee:
        """The guarantee without the final training."""
        if self.training is None:
            return self.guarantee
        # As Guarantee.compose made it: the search first.
        return replace(self.guarantee, event=self.guarantee.event.events[0])

    def _statement(self) -> dict[str, Any]:
        described = description_of(self.design)
        released = ["the hyperparameters"]
        scored = described.runs_are_private and not described.in_the_open
        if scored or self.value is not None:
            released.append("the score" if self.training is None else "the final score")
        if self.training is not None:
            released.append("the final training's output")
        released += [f"attribute {name!r}" for name in sorted(self.attributes)]
        released += ["the model artifact"] if self.artifact is not None else []
        return statement_data(
            self.guarantee,
            self.design,
            delta=self.delta,
            released=released,
            content=self._content(),
            described=described,
            cap=None if self.description is None else self.description.cap,
        )


def release(
    study: Study,
    run: dp_event.DpEvent | None = None,
    *,
    delta: float | None = None,
    neighboring_relation: str | None = None,
    output_attributes: Sequence[str] | None = None,
    artifact_store: ArtifactStore | None = None,
    failures: Literal["chance", "lost"] | None = None,
) -> Release:
    """Releases the best run of a finished study, with the guarantee of the whole search.

    Releasing again gives the same release, as long as nothing has been added to the study.

    Guarantees:
        * The winner is the run with the best score; runs that failed, were pruned or returned NaN
          are the lowest outcome; ties are broken by a uniform drawn when the run started.
        * A study whose runs are not what its plan promises is refused, and nothing is changed.

    Args:
        study: A study whose trials were drawn by a sampler of optuna-dp, all of them ended.
        run: The event of one run (training and scoring). May be left out if
            :class:`optuna_dp.PrivacyCallback` has recorded it.
        delta: The delta at which the statement gives epsilon, in (0, 1); by default what the
            callback recorded, else 1e-5. It is for display: the guarantee has every delta.
        neighboring_relation: ``"add_or_remove_one"`` or ``"replace_one"``; by default what the
            callback recorded, else ``"add_or_remove_one"``.
        output_attributes: User attributes of a trial that are part of the run's private output;
            by default what the callback recorded, else none.
        artifact_store: Where the trials' artifacts are; the winner's is put into the release.
        failures: Needed only if failed runs stand together as chance hardly explains.
            ``"chance"``: you have looked, and each failed for a reason of its own run, as any
            other might have; the guarantee stays as it is. ``"lost"``: those runs never had a
            chance (a broken objective, a machine that died, stopping early), for a reason that
            is no function of the data. The release is then the best of those that had one; it
            tells how many they were, and is charged for telling it.

    Returns:
        The release.

    Raises:
        ReleaseRefusedError: If the study cannot be vouched for; says which trial and why.
        UnfinishedStudyError: If runs are still open.
        InvalidArgumentError: If ``study`` is not a study, ``run`` not an event, or
            ``artifact_store`` not a store.
        UnsupportedEventError: If no accountant supports ``run``.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> study = optuna.create_study(
        ...     direction="maximize", sampler=odp.RandTuneSampler(trials=odp.Geometric(mean=3))
        ... )
        >>> study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
        >>> odp.release(study, odp.gaussian(noise_multiplier=4)).guarantee.epsilon(delta=1e-5) < 2
        True
    """
    try:
        evidence = read_evidence(study)
    except ReleaseRefusedError as error:
        if RELEASED_KEY not in study._storage.get_study_system_attrs(study._study_id):
            raise
        fix = f"It was released before; that release stands. {error.fix}".strip()
        raise type(error)(error.reason, trial_number=error.trial_number, fix=fix) from error
    _refuse_a_copy(study, evidence)
    procedure = procedure_of(evidence.plan.design)
    if not procedure.runs_are_private:
        _refuse_outputs(output_attributes, artifact_store)
    if artifact_store is not None and not callable(getattr(artifact_store, "open_reader", None)):
        raise InvalidArgumentError(
            "artifact_store",
            artifact_store,
            "it must be an Optuna artifact store",
            "For example optuna.artifacts.FileSystemArtifactStore(directory).",
        )
    run = procedure.run(evidence.plan.design, run)
    own = procedure.own_record(evidence.plan.design)
    record = _run_record(study, run, own, delta, neighboring_relation, output_attributes)
    lost = _check_failures(evidence, failures)
    procedure.check(evidence)
    procedure.settle(evidence)
    winner = procedure.winner(evidence)
    design = evidence.plan.design if lost is None else _of_runs_that_were_told(evidence, lost)
    guarantee = procedure.guarantee(design, record)
    found = Release(
        params=None if winner is None else dict(winner.params),
        value=procedure.value(evidence, winner),
        guarantee=guarantee,
        attributes={**_attributes(winner, record), **procedure.attributes(evidence)},
        artifact=_artifact(study, winner, artifact_store),
        distributions=procedure.distributions(evidence, winner),
        delta=record.delta if delta is None else open_unit("delta", delta),
        design=design,
        runs_told=lost,
        description=read_description(study),
    )
    _remember(study, evidence, found)
    write_run_record(study._storage, study._study_id, record)
    _warn_of_sisters(study, evidence)
    _warn_of_exact_scores(evidence)
    return found


def _warn_of_exact_scores(evidence: Evidence) -> None:
    """Tells the curator, not the release: it is made of all scores."""
    if evidence.plan.selection_from is None:
        return  # Utilities have no noise, and are not released.
    found = [score(run.trial) for run in evidence.runs]
    words = looks_exact([value for value in found if value is not None])
    if words:
        warn_of_scores(words)


def _as_json(value: Any) -> Any:
    """Returns a value as JSON has it, which knows no infinity and no NaN: they become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {name: _as_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    return value


def _refuse_outputs(attributes: Sequence[str] | None, store: ArtifactStore | None) -> None:
    for name, value in (("output_attributes", attributes), ("artifact_store", store)):
        if value:
            raise InvalidArgumentError(
                name,
                value,
                "the candidates' trainings are not private, so nothing of them may be released",
                "Leave it out; give the final model to release(study).with_training.",
            )


def _run_record(
    study: Study,
    run: Any,
    own: RunRecord | None,
    delta: float | None,
    neighboring_relation: str | None,
    output_attributes: Sequence[str] | None,
) -> RunRecord:
    recorded = read_run_record(study._storage, study._study_id) or own
    if run is None and recorded is None:
        raise ReleaseRefusedError(
            "What one run costs is not known.",
            fix="Pass it, release(study, run), or give study.optimize a "
            "PrivacyCallback(run); see optuna_dp.dp_sgd.",
        )
    base = recorded if run is None else None
    given = RunRecord.checked(
        run if base is None else base.event,
        recorded.delta if recorded else (1e-5 if delta is None else delta),
        neighboring_relation
        or (recorded.neighboring_relation if recorded else "add_or_remove_one"),
        output_attributes
        if output_attributes is not None
        else (recorded.output_attributes if recorded else ()),
    )
    if recorded is not None and given != recorded:
        raise ReleaseRefusedError(
            "The arguments of release differ from what the study recorded: "
            f"{given.differences(recorded)}.",
            fix="Leave them out, or start a new study with the right ones.",
        )
    return given


def _attributes(winner: FrozenTrial | None, record: RunRecord) -> dict[str, Any]:
    if winner is None:
        return {}
    return {
        name: winner.user_attrs[name]
        for name in record.output_attributes
        if name in winner.user_attrs
    }


def _artifact(
    study: Study, winner: FrozenTrial | None, store: ArtifactStore | None
) -> bytes | None:
    if winner is None or store is None:
        return None
    # Start-up time: most studies have no artifacts.
    from optuna.artifacts import get_all_artifact_meta

    found = get_all_artifact_meta(winner, storage=study._storage)
    if len(found) > 1:
        raise ReleaseRefusedError(
            f"The winning run has {len(found)} artifacts.",
            fix="Upload one artifact per run (for example a zip file).",
        )
    if not found:
        return None
    # Names and ids stay behind: they may tell the trial.
    with store.open_reader(found[0].artifact_id) as reader:
        return reader.read()


def _check_failures(evidence: Evidence, failures: Any) -> int | None:
    """Refuses runs that failed together; returns the number of the others if that is told.

    What is released by the runs' own law must not depend on runs that failed for certain. Neither
    may the statement say that there were some: that tells of T. So nothing is said of failures
    that are chance, and where they were not, the number of runs that had a chance is told and the
    guarantee is that of the best of exactly as many (a law like any other), which holds whatever
    T was.
    """
    if failures not in (None, "chance", "lost"):
        raise InvalidArgumentError("failures", failures, "it must be None, 'chance' or 'lost'")
    first = evidence.plan.selection_from
    if first is None:
        return None  # A candidate that failed blocks the choice.
    failed = [score(run.trial) is None for run in evidence.runs[first:]]
    together = stand_together(failed)
    if failures == "lost" and not together:
        raise InvalidArgumentError(
            "failures",
            failures,
            "no failed runs of this study stand together beyond chance",
            "Leave it out.",
        )
    if together and failures is None:
        raise ReleaseRefusedError(
            "Failed runs stand together, from some run on or for a while, as chance hardly "
            "explains. If they never had a chance to succeed (a broken objective, a machine that "
            "died, stopping early), the best of the others is not the best of T runs and may "
            "cost more.",
            fix="release(study, failures='lost') releases the best of those that had a chance, "
            "and charges for telling how many they were. If each failed by chance, for a reason "
            "of its own run: failures='chance'.",
        )
    return len(failed) - longest_block(failed)[1] if failures == "lost" else None


def _of_runs_that_were_told(evidence: Evidence, runs: int) -> Design:
    """The design of the same search with as many selection runs as were told."""
    # Nothing that does not tell the number of runs rests on it.
    from optuna_dp.trial_counts.binomial import Binomial

    exactly = Binomial(runs, mean=runs).to_json()
    settings = dict(evidence.plan.design.settings)
    if "selection" in settings:
        settings["selection"] = {**settings["selection"], "trials": exactly}
    else:
        settings["trials"] = exactly
    return replace(evidence.plan.design, settings=settings)


def _refuse_a_copy(study: Study, evidence: Evidence) -> None:
    """Refuses a second release under one plan: of a copy, before any choice is made from it.

    The nonce of a plan is drawn once, so whoever else has it is a copy (``optuna.copy_study``).
    A copy made after the release carries its mark, and gives the same release again.
    """
    storage, study_id = study._storage, study._study_id
    if RELEASED_KEY in storage.get_study_system_attrs(study_id):
        return
    for other in storage.get_all_studies():
        mark = storage.get_study_system_attrs(other._study_id).get(RELEASED_KEY)
        if isinstance(mark, dict) and mark.get("nonce") == evidence.plan.nonce:
            raise ReleaseRefusedError(
                f"It is a copy of the study {other.study_name!r}, or that one of it, and that one "
                "has been released: a second choice from the same search is a second release.",
                fix=f"Release {other.study_name!r} again, which gives the same; for a choice of "
                "its own start a new study and compose (Guarantee.compose).",
            )


def _remember(study: Study, evidence: Evidence, found: Release) -> None:
    """Writes down what was released; refuses if it is not what was released before."""
    storage, study_id = study._storage, study._study_id
    content = {
        "params": found.params,
        "value": None if found.value is None else repr(found.value),
        "attributes": found.attributes,
    }
    mark = {
        "nonce": evidence.plan.nonce,
        "digest": hashlib.sha256(
            json.dumps(content, sort_keys=True, default=repr).encode()
        ).hexdigest(),
    }
    before = storage.get_study_system_attrs(study_id).get(RELEASED_KEY)
    if before is not None and before != mark:
        raise ReleaseRefusedError(
            "It was released before, and has changed since.",
            fix="What was released first stands; a second choice from the same data is a second "
            "release and costs its own guarantee (a new study, Guarantee.compose).",
        )
    if before is None:
        storage.set_study_system_attr(study_id, RELEASED_KEY, mark)


def _warn_of_sisters(study: Study, evidence: Evidence) -> None:
    """Reminds the curator that the best of several releases is not one release."""
    storage = study._storage
    sisters = sum(
        other._study_id != study._study_id and is_ours(storage, other._study_id)
        for other in storage.get_all_studies()
    )
    if sisters:
        _logger.warning(
            "This storage holds %d other private stud%s. This guarantee is for one search whose "
            "result is released whatever it is. If a search was discarded because of its result, "
            "or the best of several is chosen, compose their guarantees (Guarantee.compose).",
            sisters,
            "y" if sisters == 1 else "ies",
        )
