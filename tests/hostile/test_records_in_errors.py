"""No error about records, scores or utilities holds any of them: a log keeps what it says."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from started import started

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.mechanisms import Utilities

# What a person would know again.
NAME, NUMBER = "Ada Lovelace", 31_415.9

_PLAN = odp.RunPlan(
    records=4, batch_size=2, steps=1, noise_multiplier=1.0, score_noise_multiplier=1.0
)


def trained(records: Any, **settings: Any) -> Callable[[], Any]:
    return lambda: odp.train(
        started(_PLAN), odp.SoftmaxRegression(2, 2), records, **{"score": None, **settings}
    )


TABLE = (np.zeros((4, 2)), np.zeros(4, dtype=np.int64))
CALLS: dict[str, Callable[[], Any]] = {
    "values of a mean that are texts": lambda: odp.scoring.private_mean(
        [NAME, NUMBER], size=2, lower=0.0, upper=1.0, noise_multiplier=1.0
    ),
    "values of a mean in rows": lambda: odp.scoring.private_mean(
        [[NUMBER], [NUMBER]], size=2, lower=0.0, upper=1.0, noise_multiplier=1.0
    ),
    "answers that are no truth values": lambda: odp.scoring.private_accuracy(
        [NAME], size=1, noise_multiplier=1.0
    ),
    "records that are dictionaries": trained([{"name": NAME, "wage": NUMBER}]),
    "records that are texts": trained([NAME, NAME]),
    "records in a list": trained([[NUMBER, NUMBER], [NUMBER, 0.0]]),
    "records to score that the plan does not": trained(TABLE, score_records=[(NAME, NUMBER)]),
    "made-up inputs that are records": trained(TABLE, inputs=[NAME, NUMBER]),
    "an identifier in place of a list": lambda: odp.partition(NAME, 2, key=b"0" * 32),
    "an identifier that is a number": lambda: odp.partition([NUMBER], 2, key=b"0" * 32),
    "a table as a plan's schema": lambda: odp.plan_budget(
        epsilon=1.0, records=9, schema={"name": [NAME], "wage": np.full(300, NUMBER)}
    ),
    "a table in place of what it cost": lambda: started(_PLAN).spent({"wage": [NUMBER]}),
    "a loss in place of a function": trained(TABLE, loss=NUMBER),
    "utilities that are texts": lambda: Utilities.from_scores([[NAME, NUMBER]]),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_error_about_records_holds_none(name: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        CALLS[name]()
    kept = f"{caught.value} {caught.value.value!r} {pickle.loads(pickle.dumps(caught.value))}"
    for private in (NAME, str(NUMBER), "31415"):
        assert private not in kept
