"""What private trainers of other libraries say that they spent while an objective runs.

They are watched where they are loaded: diffprivlib by its accountant, which every model and every
tool of it calls; InterpretML's DP-EBM and SmartNoise's synthesizers by ``fit``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple


class Spending(NamedTuple):
    """One private computation of another library.

    Attributes:
        library: Its name.
        epsilon: What it spent, by its own word.
        delta: The same.
        seed: The whole number that its noise was seeded with; None if there was none.
    """

    library: str
    epsilon: float
    delta: float
    seed: int | None


@dataclass(frozen=True)
class _Trainer:
    """Where a library says what it spends.

    Attributes:
        library: Its name, for a person.
        module: Where its class is defined.
        name: The class.
        method: The one that is called when something is spent.
        read: Takes the object, the call's arguments, and the object whose method called it.
        with_subclasses: Whether the method is overridden in subclasses.
    """

    library: str
    module: str
    name: str
    method: str
    read: Callable[[Any, tuple[Any, ...], Any], tuple[float, float, Any]]
    with_subclasses: bool = False


def _by_accountant(accountant: Any, arguments: tuple[Any, ...], caller: Any) -> Any:
    model = _outermost_model()
    if model is not None and accountant is not model.accountant:
        # A model's accountant is told the sum of what an accountant inside of it was told.
        return None, None, None
    epsilon, delta = arguments[:2]
    return epsilon, delta, getattr(caller, "random_state", None)


def _outermost_model() -> Any:
    """Returns the model of diffprivlib that is being fitted by no other one; None if none is."""
    mixin: Any = getattr(sys.modules.get("diffprivlib.validation"), "DiffprivlibMixin", ())
    frame, outermost = sys._getframe(1), None
    while frame.f_back is not None:
        frame = frame.f_back
        model = frame.f_locals.get("self")
        if isinstance(model, mixin) and hasattr(model, "accountant"):
            outermost = model
    return outermost


def _by_attributes(model: Any, arguments: tuple[Any, ...], caller: Any) -> Any:
    return model.epsilon, getattr(model, "delta", 0.0), getattr(model, "random_state", None)


_EBM = "interpret.glassbox._ebm._ebm"
_TRAINERS = (
    _Trainer("diffprivlib", "diffprivlib.accountant", "BudgetAccountant", "spend", _by_accountant),
    _Trainer("DP-EBM", _EBM, "DPExplainableBoostingClassifier", "fit", _by_attributes),
    _Trainer("DP-EBM", _EBM, "DPExplainableBoostingRegressor", "fit", _by_attributes),
    _Trainer("SmartNoise", "snsynth.base", "Synthesizer", "fit", _by_attributes, True),
)


@contextmanager
def watching_libraries(spendings: list[Spending]) -> Iterator[None]:
    """Notes what the known libraries spend meanwhile.

    Args:
        spendings: Each private computation is put in here.
    """
    with ExitStack() as undo:
        for trainer in _TRAINERS:
            kind = getattr(sys.modules.get(trainer.module), trainer.name, None)
            if kind is None:
                continue
            for owner in _owners(kind) if trainer.with_subclasses else [kind]:
                _watch(trainer, owner, spendings, undo)
        yield


def _owners(kind: type) -> list[type]:
    below: list[type] = kind.__subclasses__()
    return [kind, *(deeper for subclass in below for deeper in _owners(subclass))]


def _watch(trainer: _Trainer, owner: type, spendings: list[Spending], undo: ExitStack) -> None:
    inherited = trainer.method not in vars(owner)
    if inherited and trainer.with_subclasses:
        return  # The class that has the method is watched.
    original = getattr(owner, trainer.method)

    @functools.wraps(original)
    def watched(self: Any, *arguments: Any, **settings: Any) -> Any:
        result = original(self, *arguments, **settings)
        caller = sys._getframe(1).f_locals.get("self")
        epsilon, delta, seed = trainer.read(self, arguments, caller)
        if isinstance(epsilon, int | float) and isinstance(delta, int | float):
            number = seed if isinstance(seed, int) and not isinstance(seed, bool) else None
            spendings.append(Spending(trainer.library, float(epsilon), float(delta), number))
        return result

    setattr(owner, trainer.method, watched)
    if inherited:
        undo.callback(delattr, owner, trainer.method)
    else:
        undo.callback(setattr, owner, trainer.method, original)
