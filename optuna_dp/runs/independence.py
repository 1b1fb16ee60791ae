"""Which models the runs of a study have trained in this process.

A private selection (RandTune, DP-HyPO) charges for runs that know nothing of each other. A run
that begins with another one's weights is none. In a budget every run is paid for by composition,
so there a run may go on with what another has trained.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable

from optuna.study import Study

from optuna_dp.errors import InvalidArgumentError, Text
from optuna_dp.study.trials import read_plan

_lock = threading.Lock()
# Parameters that were trained, by their id, with the studies that trained them.
_trained: dict[int, tuple[weakref.ref[object], set[str]]] = {}


def refuse_trained(study: Study, parts: Iterable[object]) -> None:
    """Refuses parameters that another run of the study has trained.

    Args:
        study: The study.
        parts: The parameters that are about to be trained, or a model without any.

    Raises:
        InvalidArgumentError: If one of them was trained.
    """
    key = _key(study)
    with _lock:
        _refuse(key, parts)


def _refuse(key: str, parts: Iterable[object]) -> None:
    for part in parts:
        reference, studies = _trained.get(id(part), (None, ()))
        if reference is not None and reference() is part and key in studies:
            raise InvalidArgumentError(
                "model",
                Text("a model that another run of this study trains or has trained"),
                allowed="the runs of this search must not know of each other, so each begins anew",
                fix="Give a function that makes the model: odp.train(run, lambda: Net(), ...).",
            )


def take(study: Study, parts: Iterable[object]) -> None:
    """Notes what a run of a study is about to train, and refuses what another run has taken.

    In one step, so that of two runs that begin at the same time only one trains a model. The
    arguments and the error are those of :func:`refuse_trained`.
    """
    key, taken = _key(study), list(parts)
    with _lock:
        _refuse(key, taken)
        for number in [n for n, (reference, _) in _trained.items() if reference() is None]:
            del _trained[number]
        for part in taken:
            reference, studies = _trained.get(id(part), (None, set()))
            if reference is None or reference() is not part:
                reference, studies = weakref.ref(part), set()
            studies.add(key)
            _trained[id(part)] = reference, studies


def _key(study: Study) -> str:
    """Returns the nonce of a study's plan, which no other study has."""
    plan = read_plan(study)
    return "" if plan is None else plan.nonce
