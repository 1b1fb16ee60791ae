"""The script that ``optuna-dp budget`` writes to start from."""

from __future__ import annotations

from collections.abc import Mapping
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optuna_dp.samplers.budget.plan import BudgetPlan

# Maps of odp.public_maps, the best on other tables first.
_NAMES = ("joined", "squares", "raw", "cosines", "bins", "signs")


def budget_script(arguments: Mapping[str, object], plan: BudgetPlan) -> str:
    """Returns a script that runs a plan.

    Args:
        arguments: Of :func:`optuna_dp.plan_budget`.
        plan: What it returned.
    """
    records, objective, sampler = _RECORDS, _MODEL + _SEARCHED, _AROUND
    if plan.candidates is not None:
        entries = [f'    {{"features": "{name}"}},' for name in _NAMES[: plan.candidates]]
        missing_count = plan.candidates - len(_NAMES)
        if missing_count > 0:
            entries.append(f"    # HERE: {missing_count} more")
        records, objective = "", _LISTED
        sampler = Template(_LIST).substitute(candidates="\n".join(entries))
    elif not plan.pilots:
        objective, sampler = _MODEL + _FIXED, _PLAIN
    return Template(_SCRIPT).substitute(
        arguments=", ".join(f"{name}={value!r}" for name, value in arguments.items()),
        number=arguments["records"],
        records=records,
        objective=objective,
        sampler=sampler,
    )


_SCRIPT = '''\
"""Private tuning within a budget. Put your data and model where it says HERE."""

import numpy as np
import optuna

import optuna_dp as odp

plan = odp.plan_budget($arguments)

# HERE: your records, as they come: a data frame, say. These are made up, and there are as many as
# the plan says.
rng = np.random.default_rng()
table = rng.normal(size=($number, 10))
labels = np.where(table @ rng.normal(size=10) > 0, "yes", "no")

# HERE: what is public about your columns. A range is where most values lie, clipped beyond; a list
# has categories. For images and texts: odp.Schema.images, odp.Schema.tokens.
columns = {f"column {place}": (-2, 2) for place in range(10)}
schema = odp.Schema(columns, ill=["no", "yes"], target="ill")$records


def objective(trial):
    run = odp.start_run(trial)  # what this trial may spend$objective
    return trained.score  # has noise

$sampler
study = optuna.create_study(direction="maximize", sampler=sampler)
study.optimize(objective, callbacks=[odp.PrivacyCallback()])  # stops by itself
release = odp.release(study)

print(release.params, release.value)
print(release.guarantee.epsilon(plan.delta))
print(release.statement())
'''

# What differs between plans. Each part begins with a new line and ends without one.
_RECORDS = """
records = schema.encode(table, labels)"""
_MODEL = """
    # HERE: your model. With PyTorch any torch.nn.Module of this width and these outputs.
    model = odp.SoftmaxRegression(schema.width, schema.outputs)"""
_SEARCHED = """
    # The learning rate follows from this number, so it may differ between pilots and last run.
    # An example: search features, model or width instead, which only your data can answer.
    noise = trial.suggest_float("noise_per_weight", 0.03, 3, log=True)
    rate = run.learning_rate("adam", noise_per_weight=noise)
    trained = odp.train(run, model, records, learning_rate=rate)"""
_FIXED = """
    trained = odp.train(run, model, records)"""
_LISTED = """
    records = prepared(trial.suggest_categorical("features", sorted(maps)))
    # HERE: your model. With PyTorch any torch.nn.Module of this width and these outputs. The
    # learning rate follows from public numbers.
    model = odp.SoftmaxRegression(records.width, schema.outputs)
    trained = odp.train(run, model, records)"""
_AROUND = """
# The first pilot uses the value computed from public numbers, the others are around it.
guess = odp.around({"noise_per_weight": 0.3})
sampler = odp.BudgetSampler(plan, proposer=guess)"""
_PLAIN = """
sampler = odp.BudgetSampler(plan)"""
_LIST = """
maps = odp.public_maps(schema.made_up_inputs())


def prepared(name):
    def features(rows):  # of each record by itself
        mapped = maps[name](schema.encode(rows).x)
        return np.hstack([mapped, np.ones((len(mapped), 1))])

    return schema.encode(table, labels, prepare=features)


# HERE: your candidates, as many as the plan has: what you would train without a search, and other
# good guesses by public knowledge. odp.short_list("table"), "image" or "fine-tuning" has some with
# a hidden layer as well, for PyTorch.
candidates = [
$candidates
]
sampler = odp.BudgetSampler(plan, candidates=candidates)"""
