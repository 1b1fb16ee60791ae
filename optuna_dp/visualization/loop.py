"""The doubling loop of propose-test as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import optuna

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.records import score
from optuna_dp.utilities.choice import choices, read_trace
from optuna_dp.utilities.doubling import LoopResult, TraceStep
from optuna_dp.utilities.settings import PROPOSE_TEST, UtilitySettings
from optuna_dp.visualization import theme
from optuna_dp.visualization.targets import candidates_of, plan_of

if TYPE_CHECKING:
    import plotly.graph_objects as go


def plot_doubling_trace(
    result: LoopResult | Sequence[TraceStep] | optuna.Study,
) -> go.Figure:
    """Plots how the threshold climbed: proposals that were reached, and those that were not.

    The step doubles after each proposal that some candidate reached and halves after each that
    none did; the line is the utility accumulated (arXiv 2211.01852, the step-u pictures).

    **Public** if ``result`` is a loop's result or its trace: the answers are private outputs that
    its event pays for, whether they are shown or not, and the figure is a function of nothing
    else. **For the curator only** if it is a study: then the best utility among the candidates of
    each iteration is shown as well, and utilities are not private.

    Args:
        result: What :func:`optuna_dp.utilities.propose_test` returned, its ``trace``, or a
            study of :class:`~optuna_dp.ProposeTestSampler` whose choice has been made: by its
            last trial or, if that was not run, by ``release``. With a proposer there is an answer
            per batch, so a study that is still running shows those so far.

    Raises:
        InvalidArgumentError: If it is none of these, or a study without an answer yet.
        PlanError: If a study has no plan.
        MissingExtraError: If plotly is not installed.
    """
    if isinstance(result, optuna.Study):
        return _of_study(result)
    trace = list(result.trace if isinstance(result, LoopResult) else result)
    if not all(isinstance(step, TraceStep) for step in trace):
        raise InvalidArgumentError(
            "result", type(result).__name__, "it must be a LoopResult, its trace or a study"
        )
    return _figure(trace, curator=False)


def _of_study(study: optuna.Study) -> go.Figure:
    plan = plan_of(study)
    if plan.design.procedure != PROPOSE_TEST:
        raise InvalidArgumentError(
            "result",
            plan.design.sampler,
            "only a study of ProposeTestSampler has a doubling loop",
        )
    trace = read_trace(study)
    if not trace:
        raise InvalidArgumentError(
            "result",
            study.study_name,
            "no answer has been drawn yet",
            "Continue with study.optimize; the loop runs after the last candidate.",
        )
    figure = _figure(trace, curator=True)
    shown = _best_tested(study, plan)
    if shown:
        theme.line(
            figure,
            shown,
            "best mean utility among those tested (not private)",
            theme.NAIVE,
            dash="dash",
            markers=len(shown) == 1,
            shape="hvh",
        )
    return figure


def _best_tested(study: optuna.Study, plan: StudyPlan) -> list[tuple[int, float]]:
    """The best mean utility among the candidates of each iteration."""
    settings = UtilitySettings.from_json(plan.design.settings)
    best: dict[int, float] = {}
    for trial in candidates_of(study, plan):
        value = score(trial)
        if value is not None:
            utility = value if plan.design.direction == "maximize" else 1.0 - value
            stage = settings.stage_of(trial.number)
            best[stage] = max(best.get(stage, utility), utility)
    found: list[tuple[int, float]] = []
    answered = 0
    for stage, choice in sorted(choices(study, plan).items()):
        iterations = range(answered + 1, len(choice.answers) + 1)
        found += [(iteration, best[stage]) for iteration in iterations if stage in best]
        answered = len(choice.answers)
    return found


def _figure(trace: Sequence[TraceStep], *, curator: bool) -> go.Figure:
    figure = theme.figure("The doubling loop", x="iteration", y="utility", curator=curator)
    theme.line(
        figure,
        [(step.iteration, step.utility) for step in trace],
        "accumulated",
        theme.GUARANTEE,
        width=3,
        shape="hv",
        markers=len(trace) == 1,
    )
    for name, colour, symbol, kept in (
        ("reached by a candidate", theme.GOOD, "triangle-up", True),
        ("reached by none", theme.ATTACK, "triangle-down-open", False),
    ):
        steps = [step for step in trace if (step.answer is not None) == kept]
        theme.points(
            figure,
            [(step.iteration, step.threshold) for step in steps],
            f"proposed, {name}",
            colour,
            symbol=symbol,
            size=10,
            text=[
                f"step {step.step}" + ("" if step.answer is None else f", candidate {step.answer}")
                for step in steps
            ],
        )
    theme.count_along_x(figure, 1, len(trace))
    figure.update_yaxes(rangemode="tozero")
    return figure
