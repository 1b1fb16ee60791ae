"""The noisy votes as an Optuna study: they are charged for, so anybody may look at them."""

from __future__ import annotations

import optuna
from optuna.storages import BaseStorage
from optuna.study import Study

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.federated.query import read_search
from optuna_dp.releasing.release import Release


def votes_to_study(
    release: Release,
    *,
    storage: str | BaseStorage | None = None,
    study_name: str | None = None,
) -> Study:
    """Returns a study with one trial per candidate, its value the noisy number of votes.

    Optuna's plots and its dashboard then work on the vote. The best trial has the most noisy
    votes; the statement is a user attribute of the study. No privacy is spent: it is a function of
    the release.

    Args:
        release: What :meth:`FederatedVote.start` returned.
        storage: Where to; in memory by default.
        study_name: Name of the new study; Optuna makes one up by default.

    Raises:
        InvalidArgumentError: If it is not the release of a vote.
        optuna.exceptions.DuplicatedStudyError: If the name is taken.
    """
    if release.design.procedure != "vote" or "noisy_votes" not in release.attributes:
        raise InvalidArgumentError(
            "release", release.design.procedure, "it must be the release of a vote"
        )
    space, candidates = read_search(release.design.settings["search"])
    study = optuna.create_study(storage=storage, study_name=study_name, direction="maximize")
    for params, votes in zip(candidates, release.attributes["noisy_votes"], strict=True):
        study.add_trial(
            optuna.trial.create_trial(params=params, distributions=space, value=float(votes))
        )
    study.set_user_attr("privacy statement", release.statement())
    study.set_user_attr("privacy", release.to_json()["statement"])
    return study
