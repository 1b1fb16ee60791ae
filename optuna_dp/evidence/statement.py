"""Base of what statements say about a procedure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from optuna_dp.core.value_types import JsonObject
from optuna_dp.evidence.assumptions import FINAL_TRAINING, Assumption
from optuna_dp.evidence.data_description import SAMPLING_ROW
from optuna_dp.evidence.facts import Fact, Part, Status, enforced
from optuna_dp.evidence.layout import escaped, one_line
from optuna_dp.evidence.record_counts import RecordCounts
from optuna_dp.evidence.run_kinds import RunKind
from optuna_dp.runs.judgement import COMPARED, ENFORCED, NOT_CHECKED
from optuna_dp.runs.scripts import combined
from optuna_dp.study.plan import Design
from optuna_dp.training.exact_step import GRIDS, NOISE_GENERATOR
from optuna_dp.training.optimizers import GIVEN, OPTIMIZER_NAMES, REHEARSED

if TYPE_CHECKING:
    from optuna_dp.accounting.guarantee import Guarantee

SCRIPT_ROW = "Script"
# What a curator vouched for, at the release and in an objective.
VOUCHED_ROW = "Vouched for by the curator"
VOUCHED_IN_RUNS_ROW = "Vouched for in runs"
VOUCHED_ROWS = (VOUCHED_ROW, VOUCHED_IN_RUNS_ROW)
# What is said of sampling, clipping, noise and steps, and of scores.
TRAININGS = {
    ENFORCED: "enforced: this package drew the batches, clipped each record's gradient, added the "
    "noise and took the steps",
    COMPARED: "compared: what the training's own accountant recorded is within the plan; how the "
    "training used the data is the curator's word",
    NOT_CHECKED: "not checked: the curator's word",
}
SCORES = {
    ENFORCED: "enforced: this package computed it record by record and added the noise",
    COMPARED: "compared: this package added the noise to one value for each record; how the "
    "values were computed is the curator's word",
    NOT_CHECKED: "not checked: the curator's word",
}
RELATIONS = {
    "add_or_remove_one": "adding or removing one record",
    "replace_one": "replacing one record by another",
}
NOT_COVERED = """\
The guarantee covers only the release. It does not cover the table of trials, their number, how
long they took, logs, and the curator's dashboard."""
TRUST = (
    "one trusted curator, who sees the data and the whole study. Everybody else may see the "
    "release and nothing else"
)


class Description(ABC):
    """What a statement says of a procedure. It is made of public things only.

    Attributes:
        checked: What the software made sure of, and refuses to release otherwise.
        trust: Who sees what.
        relations: The neighbouring relations in the procedure's words.
        touches: What touches the records, if the whole procedure is one thing.
        score_is_told: Whether there is a score in every release, if only None for no result.
        not_covered: What the guarantee does not cover, a paragraph.
        must_not: What must not be published besides, as a list.
    """

    checked: tuple[str, ...]
    trust: str = TRUST
    relations: Mapping[str, str] = RELATIONS
    touches: str = "The choice"
    score_is_told: bool = True
    not_covered: str = NOT_COVERED
    must_not: tuple[str, ...] = (
        "the table of trials, and any other run's hyperparameters, score or model",
        "how many runs there were, how long they took, when they began and ended",
        "logs, the curator's dashboard and storage, seeds and random states",
    )

    @abstractmethod
    def facts(self, design: Design, guarantee: Guarantee) -> list[Fact]:
        """Returns what was planned.

        Args:
            design: The design of the study.
            guarantee: The guarantee of the search, without a final training.
        """

    def facts_of_release(self, design: Design, content: JsonObject) -> list[Fact]:
        """Returns what happened.

        Args:
            design: The design of the study.
            content: What is released, with what is known of the runs ("spending").
        """
        return []

    def run_kinds(
        self, design: Design, guarantee: Guarantee, content: JsonObject, delta: float
    ) -> list[RunKind]:
        """Returns the kinds of runs that touch the records, with their numbers.

        Args:
            design: The design of the study.
            guarantee: The guarantee of the search, without a final training.
            content: What is released, with what is known of the runs ("spending").
            delta: At which the cost of one run by itself is given.
        """
        return [RunKind.of_event(self.touches, guarantee.event, guarantee, delta, count=1)]

    @abstractmethod
    def assumptions(self, design: Design, content: JsonObject) -> tuple[Assumption, ...]:
        """Returns what the guarantee depends on besides the software.

        Args:
            design: The design of the study.
            content: What is released, with what is known of the runs ("spending").
        """

    def all_assumptions(
        self, design: Design, content: JsonObject, *, trained: bool
    ) -> tuple[Assumption, ...]:
        """Returns the assumptions, and those of a final training that is composed on top."""
        return self.assumptions(design, content) + (FINAL_TRAINING if trained else ())

    def record_counts(self, design: Design, spending: JsonObject) -> RecordCounts:
        """Returns how many records are protected, as far as the plan and the runs say it.

        Args:
            design: The design of the study.
            spending: What is known of the runs; empty before they have ended.
        """
        return RecordCounts()

    def planned(self, design: Design) -> tuple[float, float] | None:
        """Returns the planned epsilon and its delta; None if the design has no target.

        Args:
            design: The design of the study.
        """
        return None

    def contradiction(self, design: Design, content: JsonObject) -> str:
        """Returns where a release says what no study of this design can be; empty if nowhere.

        Args:
            design: The design of the study.
            content: What is released, with what is known of the runs ("spending").
        """
        return ""


def sampling_fact(content: JsonObject) -> Fact:
    """Returns how records were sampled, where the software drew the batches of every run.

    Args:
        content: What is released, with what the curator said of the sampling.
    """
    own_words = content.get("description", {}).get("sampling")
    remark = f". In the curator's words: {escaped(one_line(own_words))}" if own_words else ""
    sentence = (
        "enforced: each record joined each step independently, with the planned chance (Poisson "
        "sampling)"
    )
    return Fact(SAMPLING_ROW, sentence + remark, Status.ENFORCED, Part.RUNS)


def step_facts(spending: JsonObject) -> list[Fact]:
    """Returns the arithmetic of the released run's training, where the software did it.

    Args:
        spending: What is known of runs, as releases have it.
    """
    step = spending.get("step")
    if not isinstance(step, Mapping):
        return []
    remark = (
        ""
        if step["reproducible"]
        else ". The device computes other bits of a gradient each time, so that a gradient does "
        "not depend on the other records could not be tested"
    )
    places = "" if step["ranks"] == 1 else f" in each of {step['ranks']} processes"
    text = (
        f"enforced: each gradient was clipped to the norm {step['clipping_norm']:g} and rounded "
        f"to a grid of {step['units']:,} units in that norm; gradients were added as whole "
        f"numbers, without error; the noise is from {step['generator']}'s generator, rounded to "
        f"the grid; {step['physical_batch']} gradients at most were computed at a time"
        f"{places}. The "
        f"numbers are those of the released run{remark}"
    )
    optimizer = {"function": "made by a function of the script"}.get(
        step["optimizer"], step["optimizer"]
    )
    rate = (
        "found on made-up inputs and noise" if step["rate"] == REHEARSED else "given by the script"
    )
    own = f"{optimizer}; the rate of the first step was {rate}. It sees noisy sums only"
    return enforced({"Sums and noise": text, "Optimizer": own}, Part.RUNS)


def script_facts(spending: JsonObject) -> list[Fact]:
    """Returns which source files asked for the runs.

    Args:
        spending: What is known of runs, as releases have it.
    """
    script = spending.get("script")
    if not script:
        text = "no file is known that asked for all runs with odp.start_run(trial)"
        return [Fact(SCRIPT_ROW, text, Status.NOT_STATED, Part.RUNS)]
    names = " ".join(script)
    text = (
        f"noted when the runs began: {escaped(', '.join(script))}, together SHA-256 "
        f"{combined(script)} (`sha256sum {escaped(names)} | sha256sum`). That these are what ran "
        "is the curator's word"
    )
    return [Fact(SCRIPT_ROW, text, Status.STATED, Part.RUNS)]


def impossible_step(spending: JsonObject) -> str:
    """Returns why no training of this package can have the stated arithmetic; empty if one can.

    Args:
        spending: What is known of runs, as releases have it.
    """
    step = spending.get("step")
    if step is None:
        return ""
    if step["generator"] != NOISE_GENERATOR:
        return f"noise is said to be from {str(step['generator'])[:40]!r}"
    if step["units"] not in GRIDS:
        return f"a grid of {step['units']} units in a clipping norm is no grid of a training"
    if step["optimizer"] not in OPTIMIZER_NAMES or step["rate"] not in (GIVEN, REHEARSED):
        return "an optimizer, or where its rate came from, is none of a training"
    if not (step["clipping_norm"] > 0.0 and min(step["physical_batch"], step["ranks"]) >= 1):
        return "a clipping norm, a physical batch or a number of processes is not positive"
    return ""


def vouched_facts(spending: JsonObject) -> list[Fact]:
    """Returns the curator's reasons why the guarantee covers the runs, as far as there are any.

    Args:
        spending: What is known of runs, as releases have it.
    """
    reasons = {
        VOUCHED_IN_RUNS_ROW: "; ".join(spending.get("vouched_in_runs", [])),
        VOUCHED_ROW: spending.get("vouched", ""),
    }
    return [
        Fact(name, escaped(one_line(text)), Status.NOT_CHECKED, Part.RUNS)
        for name, text in reasons.items()
        if text
    ]
