"""Making a release: the best run of a study that can be vouched for, once."""

from __future__ import annotations

import hashlib
import json
import logging
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import optuna.logging

from optuna_dp.core.optuna_internals import storage_of
from optuna_dp.core.validation import open_unit, warn_of_large_delta
from optuna_dp.core.value_types import JsonObject
from optuna_dp.errors import InvalidArgumentError, ReleaseRefusedError
from optuna_dp.evidence.data_description import (
    OLDER_STUDIES,
    DataDescription,
    read_description,
)
from optuna_dp.evidence.ended_runs import Evidence
from optuna_dp.evidence.procedure import Procedure, ReleaseRequest
from optuna_dp.evidence.procedures import description_of, procedure_of
from optuna_dp.evidence.reading import evidence_from, with_cost
from optuna_dp.evidence.record_counts import RecordCounts
from optuna_dp.evidence.start import OPTUNA_LOG
from optuna_dp.releasing.release import Release
from optuna_dp.releasing.reminders import remind
from optuna_dp.study.entries import RELEASED, add_trial
from optuna_dp.study.plan import Design
from optuna_dp.study.snapshot import OtherStudy, StudySnapshot, other_studies
from optuna_dp.study.storage_errors import clear_storage_errors, storage_failure
from optuna_dp.study.trials import checked_study, own_slot
from optuna_dp.study.waiting import wait_for_others

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

    from optuna_dp.core.optuna_internals import ArtifactStore


_logger = logging.getLogger("optuna_dp")
NO_MARK = (
    "The storage cannot be written to, so this release leaves no mark there. Keep what was "
    "released (Release.to_json): without the mark nothing refuses a second, different release of "
    "this study or of a copy."
)
NOT_NEEDED = (
    "vouched= was not needed: every run of this study is enforced or compared. The statement does "
    "not print the words."
)


def release(
    study: Study,
    *,
    delta: float | None = None,
    artifact_store: ArtifactStore | None = None,
    failures: Literal["chance", "lost"] | None = None,
    vouched: str | None = None,
    give_up_last_run: bool = False,
    wait: bool = False,
) -> Release:
    """Releases the best run of a finished study, with the guarantee of the whole search.

    Releasing again gives the same release, as long as nothing has been added to the study.

    Guarantees:
        * The winner is the run with the best score; runs that failed, were pruned or returned NaN
          are the lowest outcome; ties are broken by a uniform drawn when the run started.
        * A study whose runs are not what its plan says is refused, and nothing is changed.

    Args:
        study: A study whose trials were drawn by a sampler of optuna-dp, all of them ended.
        delta: The delta at which the statement gives epsilon, in (0, 1); by default the budget
            plan's, else 1e-5. It is for display: the guarantee has every delta.
        artifact_store: Where the trials' artifacts are; the winner's is put into the release.
        failures: How to treat a block of failed runs too long to be chance; needed only then.
            ``"chance"``: you have looked, and each failed for a reason of its own run, as any
            other might have; the guarantee stays as it is. ``"lost"``: these runs could not
            succeed (a broken objective, a machine that died, stopping early), for a cause that
            does not depend on the data. The release is the best of the others. It reveals how
            many they were, and the guarantee is that of the best of exactly so many.
        vouched: How you know that the guarantee covers the runs, in words that the statement
            prints. It is needed where the cost of a run was stated as an event, and not by a
            plan: an event is your word. It is also needed where a run shows what nothing recorded
            vouches for: it never asked :func:`optuna_dp.start_run` what it may spend, handed in
            nothing that its training spent, returned another number than ``odp.train`` or
            ``run.score`` made, or has reported values, several values or attributes that nothing
            pays for.
        give_up_last_run: For a study with a budget: the last run's score and model are not
            released, only its hyperparameters, which were chosen before it began.
        wait: Whether to wait for trials that other workers are at, in place of an error: for a
            script that several workers run.

    Returns:
        The release.

    Raises:
        ReleaseRefusedError: If the study cannot be vouched for; says which trial and why. If
            nobody has said what a run costs.
        UnfinishedStudyError: If runs are still open.
        InvalidArgumentError: If ``study`` is not a study, or ``artifact_store`` not a store.
        StorageError: If the storage cannot be read, or a private choice cannot be recorded.

    Warns:
        UserWarning: If the study is released and its storage cannot be written to, so that no mark
            of the release stands there.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> study = optuna.create_study(
        ...     direction="maximize",
        ...     sampler=odp.RandTuneSampler(
        ...         trials=odp.Geometric(mean=3), run=odp.gaussian(noise_multiplier=4)
        ...     ),
        ... )
        >>> study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
        >>> released = odp.release(study, vouched="a stand-in for a training")
        >>> released.guarantee.epsilon(delta=1e-5) < 2
        True
    """
    request = ReleaseRequest(failures, vouched, give_up_last_run)
    with clear_storage_errors(study):
        if wait:
            wait_for_others(checked_study(study))
        return _released(study, request, delta=delta, artifact_store=artifact_store)


def _released(
    study: Study,
    request: ReleaseRequest,
    *,
    delta: float | None,
    artifact_store: ArtifactStore | None,
) -> Release:
    snapshot = StudySnapshot.of(checked_study(study))
    try:
        evidence = evidence_from(snapshot)
    except ReleaseRefusedError as error:
        if RELEASED.of(snapshot.attributes) is None:
            raise
        fix = f"The study was released before; that release stands. {error.fix}".strip()
        raise type(error)(error.reason, trial_number=error.trial_number, fix=fix) from error
    others = other_studies(study)
    _refuse_a_copy(evidence, others)
    procedure = with_cost(procedure_of(evidence.plan.design), snapshot.attributes)
    procedure.check_request(request)
    procedure.check_outputs(artifact_store)
    if artifact_store is not None and not callable(getattr(artifact_store, "open_reader", None)):
        raise InvalidArgumentError(
            "artifact_store",
            artifact_store,
            allowed="it must be an Optuna artifact store",
            fix="For example optuna.artifacts.FileSystemArtifactStore(directory).",
        )
    if request.failures not in (None, "chance", "lost"):
        raise InvalidArgumentError(
            "failures", request.failures, allowed="it must be None, 'chance' or 'lost'"
        )
    description = read_description(snapshot.attributes)
    # Before anything is chosen, and again when the runs have said how many records they scored.
    _check_description(description, _record_counts(procedure.design, {}), snapshot)
    evidence = _with_choice(study, evidence, procedure)
    outcome = procedure.outcome(evidence, request)
    counts = _record_counts(outcome.design, outcome.spending)
    _check_description(description, counts, snapshot)
    winner = outcome.trial
    older = sum(other.is_older and other.is_ours for other in others)
    artifact = None
    # Of a last run that failed, only the hyperparameters are released: it is no stored trial.
    if winner is not None and winner.number >= 0 and artifact_store is not None:
        artifact = _artifact_of(study, winner, artifact_store)
    result = Release(
        params=None if winner is None else dict(winner.params),
        value=outcome.value,
        guarantee=procedure_of(outcome.design).guarantee(),
        attributes={**_attributes(winner, procedure.output_attributes), **outcome.attributes},
        artifact=artifact,
        distributions=outcome.distributions,
        delta=procedure.delta if delta is None else open_unit("delta", delta),
        design=outcome.design,
        disclosed_runs=outcome.disclosed_runs,
        description=description,
        spending={**outcome.spending, **({OLDER_STUDIES: older} if older else {})},
    )
    described_records = None if description is None else description.records
    warn_of_large_delta(result.delta, described_records or counts.protected or counts.trained)
    mark = mark_of(evidence.plan.nonce, result)
    if RELEASED.of(evidence.snapshot.attributes) is not None:
        optuna.logging.get_logger(OPTUNA_LOG).info(
            "The study %r was released before, and this is the same release. For new data make a "
            "study of another name: the costs of both add up for whoever is in both "
            "(optuna-dp verify FILE --with OTHER).",
            evidence.snapshot.name,
        )
    # Read again: another worker may have released while this one computed.
    stored_mark = RELEASED.read(study)
    _check_as_before(stored_mark, mark)
    try:
        if stored_mark is None:
            RELEASED.write(study, mark)
    except Exception as error:
        if storage_failure(error) is None:
            raise
        _logger.warning(NO_MARK)
        warnings.warn(NO_MARK, UserWarning, stacklevel=4)
    remind(evidence, others)
    if request.vouched is not None and "vouched" not in result.spending:
        _logger.warning(NOT_NEEDED)
    return result


def _with_choice(study: Study, evidence: Evidence, procedure: Procedure) -> Evidence:
    """Returns what was read of a study together with its private choice, made if there is none.

    The choice is recorded and the study read again: of two workers that chose, both take the
    choice that was recorded first.
    """
    choice = procedure.new_choice(evidence)
    if choice is None:
        return evidence
    add_trial(study, choice)
    return replace(evidence, snapshot=StudySnapshot.of(study))


def _record_counts(design: Design, spending: JsonObject) -> RecordCounts:
    """Returns how many records are protected, as far as the plan and the runs say it."""
    return description_of(design).record_counts(design, spending)


def _check_description(
    description: DataDescription | None, counts: RecordCounts, snapshot: StudySnapshot
) -> None:
    """Refuses a description that says another number of records than the plan and the runs.

    Not of a study that was released: its description cannot change any more.
    """
    described_records = None if description is None else description.records
    reason = counts.contradiction(described_records)
    if reason and RELEASED.of(snapshot.attributes) is None:
        number = "..." if counts.protected is None else str(counts.protected)
        raise ReleaseRefusedError(
            f"Its description says {described_records:,} records, but {reason}.",
            fix=f"Describe it again: optuna_dp.describe(study, records={number}).",
        )


def _artifact_of(study: Study, winner: FrozenTrial, store: ArtifactStore) -> bytes | None:
    """The content of the winner's artifact, None if it has none; refuses several."""
    from optuna.artifacts import get_all_artifact_meta  # Lazy: only releases with artifacts.

    artifacts = get_all_artifact_meta(winner, storage=storage_of(study))
    if len(artifacts) > 1:
        raise ReleaseRefusedError(
            f"The winning run has {len(artifacts)} artifacts.",
            fix="Upload one artifact per run, for example a zip file.",
        )
    if not artifacts:
        return None
    # Names and ids stay behind: they may tell the trial.
    with store.open_reader(artifacts[0].artifact_id) as reader:
        return reader.read()


def _attributes(winner: FrozenTrial | None, names: Sequence[str]) -> dict[str, object]:
    attributes = {} if winner is None else winner.user_attrs
    return {name: attributes[name] for name in names if name in attributes}


def _refuse_a_copy(evidence: Evidence, others: Sequence[OtherStudy]) -> None:
    """Refuses a second release under one plan: of a copy, before any choice is made from it.

    The nonce of a plan is drawn once, so another study with it is a copy (``optuna.copy_study``).
    A copy made after the release carries its mark, and gives the same release again.
    """
    if RELEASED.of(evidence.snapshot.attributes) is not None:
        return
    for sibling in others:
        mark = RELEASED.of(sibling.attributes)
        if isinstance(mark, dict) and mark.get("nonce") == evidence.plan.nonce:
            raise ReleaseRefusedError(
                f"It and the study {sibling.name!r} are copies of one search, and "
                f"{sibling.name!r} has been released. A second choice would cost once more.",
                fix=f"Release {sibling.name!r} again: the result is the same. For another "
                "choice start a new study and add its cost (Guarantee.compose).",
            )
        # Of copies that went on in several ways the first may be released, whatever came out.
        if sibling.is_older and _went_on_otherwise(sibling, evidence):
            raise ReleaseRefusedError(
                f"It is a copy of the study {sibling.name!r}, and both have made more runs "
                "since. No guarantee covers the better of the two.",
                fix=f"Release {sibling.name!r}, and show nothing of this one. Add the cost "
                "of both (Guarantee.compose).",
            )


def _went_on_otherwise(other: OtherStudy, evidence: Evidence) -> bool:
    """Returns whether another study has the plan of this one, and a run in its place elsewhere."""
    slots = {run.trial.number: own_slot(run.trial) for run in evidence.runs}
    for trial in other.trials():
        slot = own_slot(trial)
        if not isinstance(slot, dict) or slot.get("nonce") != evidence.plan.nonce:
            continue
        if slots.get(trial.number) not in (None, slot):
            return True
    return False


def mark_of(nonce: str, result: Release) -> dict[str, str]:
    """Returns what stands in a storage for a release of it, by the nonce of the study's plan."""
    content = {
        "params": result.params,
        "value": None if result.value is None else repr(result.value),
        # What is said of trials that are no runs may change; what is released may not.
        "attributes": {n: v for n, v in result.attributes.items() if n != "not covered"},
        "disclosed_runs": result.disclosed_runs,
    }
    text = json.dumps(content, sort_keys=True, default=repr)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"nonce": nonce, "digest": digest}


def _check_as_before(stored_mark: object, mark: dict[str, str]) -> None:
    """Refuses a release that is not what was released before, by the marks of the two."""
    if stored_mark is not None and stored_mark != mark:
        raise ReleaseRefusedError(
            "It was released before, and has changed since.",
            fix="What was released first stands; a second choice from the same data is a second "
            "release and costs its own guarantee (a new study, Guarantee.compose).",
        )
