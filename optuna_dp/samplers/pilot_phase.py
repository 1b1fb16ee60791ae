"""The first pilots: proposed by any Optuna sampler from earlier pilots' private outputs."""

from __future__ import annotations

from typing import Any

from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial

from optuna_dp.errors import WaitError
from optuna_dp.protocol.draws import check_choices, drawn_once
from optuna_dp.protocol.records import GAVE_UP_KEY, trial_id_of
from optuna_dp.protocol.visible_runs import completed_batches
from optuna_dp.samplers.proposals import Proposer, remember
from optuna_dp.samplers.selection import SelectionSampler

# Where the proposer's trial is kept while its pilot is under way.
_PROPOSAL = "proposal"


class PilotPhase(SelectionSampler):
    """Base of a sampler whose first trials are proposed pilots."""

    _proposed: int  # How many trials, from number 0, the proposer proposes.
    _pilots: int  # How many pilots there are in all.
    _pilot_batch_size: int  # Proposed pilots per batch; one sees the completed batches before it.
    _first_batch: int  # Size of the first batch, which sees nothing.
    _proposer: Proposer
    _timeout: float | None  # Seconds that a worker waits for others; None: as long as it takes.

    def _value_of(
        self, study: Study, trial: FrozenTrial, name: str, distribution: BaseDistribution
    ) -> Any:
        """Asks the proposer in a proposed pilot, draws from the uniform prior in other runs."""
        if trial.number >= self._proposed:
            return super()._value_of(study, trial, name, distribution)
        check_choices(name, distribution)

        def propose() -> Any:
            asked = self._ask(study, trial, self._search_space or {})
            value = asked._suggest(name, distribution)
            remember(study, trial._trial_id, asked)
            return value

        return drawn_once(study, trial, name, distribution, propose)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        params = super().sample_relative(study, trial, search_space)
        known = self._under_way.get(study, trial)
        asked = None if known is None else known.kept.get(_PROPOSAL)
        if asked is not None:
            remember(study, trial._trial_id, asked)
        return params

    def _proposal(
        self, study: Study, number: int, space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Returns the joint draw of a proposed pilot."""
        trial = study._storage.get_trial(trial_id_of(study, number))
        return dict(self._ask(study, trial, space).params)

    def _ask(self, study: Study, trial: FrozenTrial, space: dict[str, BaseDistribution]) -> Trial:
        """The proposer's trial for a pilot, made once while the pilot is under way here."""
        known = self._under_way.get(study, trial)
        if known is not None and _PROPOSAL in known.kept:
            kept: Trial = known.kept[_PROPOSAL]
            return kept
        number = trial.number
        visible = self._ended(study, number, self._seen_before(number))
        asked = self._proposer.ask(study.directions, visible, number, space)
        if known is not None:
            known.kept[_PROPOSAL] = asked
        return asked

    def _seen_before(self, number: int) -> int:
        """Returns where the batch of a proposed pilot begins: it sees the pilots before that."""
        if number < self._first_batch:
            return 0
        return number - (number - self._first_batch) % self._pilot_batch_size

    def _ended(self, study: Study, number: int, before: int) -> list[FrozenTrial]:
        """All runs of slots below ``before``; waits until they have ended."""
        found = completed_batches(
            study,
            before,
            own=lambda trial: self._asked_by_this_thread(study, trial),
            batches=self._batches(before),
            otherwise="",
            timeout=self._timeout,
        )
        if found is None:
            raise self._gave_up(study, number, before)
        return found

    def _batches(self, before: int) -> str:
        """What to enlarge so that fewer runs wait for those below ``before``; empty: nothing."""
        size = "pilot_batch_size" if before < self._pilots else "batch_size"
        return f"PilotSampler a {size}"

    def _gave_up(self, study: Study, number: int, before: int) -> WaitError:
        """Notes that a run did not wait for those below ``before``; returns what to raise."""
        study._storage.set_trial_system_attr(trial_id_of(study, number), GAVE_UP_KEY, True)
        return WaitError(
            f"Waited {self._timeout:g} seconds (timeout) for earlier runs and gave up this one. "
            "Its failure depends on how long other runs took, which no "
            "guarantee covers, so this study cannot be released. The pilots that have ended are "
            "paid for all the same: compose their event if you start again."
        )
