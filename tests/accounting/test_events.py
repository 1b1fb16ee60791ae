"""Events: construction, refusals, and exact JSON records."""

from __future__ import annotations

import json
import math
import sys
from types import SimpleNamespace
from typing import Any

import attr
import numpy as np
import pytest
from dp_accounting import dp_event
from refusals import refuses

from optuna_dp import Binomial, Geometric, Logarithmic, NegativeBinomial, Poisson
from optuna_dp.accounting import event_json
from optuna_dp.accounting.event_json import canonical_key, event_from_json, event_to_json
from optuna_dp.accounting.events import (
    compose,
    dp_sgd,
    gaussian,
    laplace,
    neighboring_relation,
    zcdp,
)
from optuna_dp.accounting.kinds.approximate import ApproximateDpEvent, approximate_dp, pure_dp
from optuna_dp.accounting.kinds.bounded_range import BoundedRangeDpEvent, bounded_range
from optuna_dp.accounting.kinds.curve import RdpDpEvent, rdp
from optuna_dp.accounting.kinds.profile import ProfileDpEvent
from optuna_dp.accounting.kinds.worst_case import WorstCaseDpEvent, worst_case
from optuna_dp.accounting.opacus import from_opacus
from optuna_dp.errors import InvalidArgumentError, UnsupportedEventError
from optuna_dp.selection.event import PrivateSelectionDpEvent

SGD = dp_sgd(noise_multiplier=0.71, sample_rate=256 / 60000, steps=2344)


class TestConstructors:
    def test_dp_sgd_is_repeated_poisson_sampled_gaussians(self) -> None:
        expected = dp_event.SelfComposedDpEvent(
            dp_event.PoissonSampledDpEvent(256 / 60000, dp_event.GaussianDpEvent(0.71)), 2344
        )
        assert expected == SGD

    def test_the_simple_ones(self) -> None:
        assert gaussian(4) == dp_event.GaussianDpEvent(4.0)
        assert laplace(2) == dp_event.LaplaceDpEvent(2.0)
        assert pure_dp(1) == ApproximateDpEvent(1.0, 0.0)
        assert bounded_range(1) == BoundedRangeDpEvent(1.0)
        assert approximate_dp(1, 1e-6) == ApproximateDpEvent(1.0, 1e-6)
        assert zcdp(0.5) == dp_event.ZCDpEvent(0.5)

    def test_rdp_points_are_sorted(self) -> None:
        assert rdp([math.inf, 2, 8], [3, 0.1, 0.4]) == RdpDpEvent((2, 8, math.inf), (0.1, 0.4, 3))

    def test_compose_and_worst_case(self) -> None:
        assert compose(SGD) is SGD
        assert compose(SGD, gaussian(5)) == dp_event.ComposedDpEvent([SGD, gaussian(5)])
        assert worst_case(SGD, SGD) is SGD
        assert worst_case(SGD, gaussian(5)) == WorstCaseDpEvent((SGD, gaussian(5)))

    def test_events_are_frozen(self) -> None:
        with pytest.raises(AttributeError):
            pure_dp(1.0).epsilon = 2.0  # type: ignore[misc]

    def test_selection_checks_its_parts(self) -> None:
        good = PrivateSelectionDpEvent(SGD, Geometric(mean=10), (0.75, 2), "data")
        assert good.density_bounds == (0.75, 2.0)
        for run, trials, bounds, policy, name in (
            ("x", Geometric(mean=10), (1, 1), "data", "run"),
            (SGD, 10, (1, 1), "data", "trials"),
            (SGD, Geometric(mean=10), (2, 1), "data", "density_bounds"),
            (SGD, Geometric(mean=10), (1, 1), "both", "policy"),
        ):
            with pytest.raises(InvalidArgumentError) as caught:
                PrivateSelectionDpEvent(run, trials, bounds, policy)
            assert caught.value.argument == name

    @pytest.mark.parametrize(
        ("make", "argument"),
        [
            (lambda: dp_sgd(noise_multiplier=0, sample_rate=0.1, steps=1), "noise_multiplier"),
            (lambda: dp_sgd(noise_multiplier=-1, sample_rate=0.1, steps=1), "noise_multiplier"),
            (lambda: dp_sgd(noise_multiplier=math.nan, sample_rate=0.1, steps=1), "noise_multi"),
            (lambda: dp_sgd(noise_multiplier=1, sample_rate=0, steps=1), "sample_rate"),
            (lambda: dp_sgd(noise_multiplier=1, sample_rate=1.5, steps=1), "sample_rate"),
            (lambda: dp_sgd(noise_multiplier=1, sample_rate=64, steps=1), "sample_rate"),
            (lambda: dp_sgd(noise_multiplier=1, sample_rate=0.1, steps=0), "steps"),
            (lambda: dp_sgd(noise_multiplier=1, sample_rate=0.1, steps=1.5), "steps"),
            (lambda: gaussian(0), "noise_multiplier"),
            (lambda: gaussian(math.inf), "noise_multiplier"),
            (lambda: gaussian("1"), "noise_multiplier"),
            (lambda: laplace(0), "noise_multiplier"),
            (lambda: pure_dp(-1), "epsilon"),
            (lambda: pure_dp(math.inf), "epsilon"),
            (lambda: bounded_range(-1), "epsilon"),
            (lambda: bounded_range(math.nan), "epsilon"),
            (lambda: approximate_dp(1, 1), "delta"),
            (lambda: approximate_dp(1, -1e-9), "delta"),
            (lambda: approximate_dp(1, math.nan), "delta"),
            (lambda: zcdp(-0.1), "rho"),
            (lambda: rdp([], []), "orders"),
            (lambda: rdp([1.0], [0.1]), "orders"),
            (lambda: rdp([2.0, 2.0], [0.1, 0.2]), "orders"),
            (lambda: rdp([2.0], [0.1, 0.2]), "epsilons"),
            (lambda: rdp([2.0], [-0.1]), "epsilons"),
            (lambda: rdp([2.0], [math.nan]), "epsilons"),
            (lambda: rdp(2.0, [0.1]), "orders"),  # type: ignore[arg-type]
            (lambda: compose(), "events"),
            (lambda: compose(1.0), "events[0]"),
            (lambda: worst_case(), "events"),
            (lambda: WorstCaseDpEvent(SGD), "events"),
            (lambda: neighboring_relation("add"), "neighboring_relation"),
        ],
    )
    def test_bad_input_names_the_argument(self, make: Any, argument: str) -> None:
        with pytest.raises(InvalidArgumentError) as caught:
            make()
        assert caught.value.argument.startswith(argument)


class TestFromOpacus:
    def accountant(self, history: Any, mechanism: str = "prv") -> Any:
        return SimpleNamespace(history=history, mechanism=lambda: mechanism)

    def test_reads_engine_and_accountant(self) -> None:
        accountant = self.accountant([(0.71, 256 / 60000, 2344)])
        assert from_opacus(accountant) == SGD
        assert from_opacus(SimpleNamespace(accountant=accountant)) == SGD

    def test_several_phases_compose(self) -> None:
        step = dp_sgd(noise_multiplier=2.0, sample_rate=0.1, steps=3)
        history = [(0.71, 256 / 60000, 2344), (2.0, 0.1, 3)]
        assert from_opacus(self.accountant(history)) == compose(SGD, step)

    @pytest.mark.parametrize(
        ("history", "mechanism", "argument"),
        [
            ([], "rdp", "engine_or_accountant"),
            (None, "rdp", "engine_or_accountant"),
            ([(1.0, 0.1, 1)], "trees", "engine_or_accountant"),
            ([(1.0, 0.1)], "rdp", "history[0]"),
            ([(1.0, 0.1, 1), 3], "rdp", "history[1]"),
            ([(0.0, 0.1, 1)], "rdp", "history[0].noise_multiplier"),
            ([(1.0, 2.0, 1)], "gdp", "history[0].sample_rate"),
            ([(1.0, 0.5, 0)], "gdp", "history[0].steps"),
        ],
    )
    def test_refuses_what_it_cannot_read(
        self, history: Any, mechanism: str, argument: str
    ) -> None:
        with pytest.raises(InvalidArgumentError) as caught:
            from_opacus(self.accountant(history, mechanism))
        assert caught.value.argument == argument

    def test_needs_no_opacus(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "opacus", None)  # importing it would raise
        from_opacus(self.accountant([(1.0, 0.1, 1)]))


TREES = [
    dp_event.NoOpDpEvent(),
    dp_event.NonPrivateDpEvent(),
    SGD,
    laplace(0.1 + 0.2),
    dp_event.DiscreteLaplaceDpEvent(0.3, 2),
    dp_event.RandomizedResponseDpEvent(0.5, 4),
    dp_event.SampledWithoutReplacementDpEvent(1000, 10, gaussian(1.0)),
    dp_event.RepeatAndSelectDpEvent(gaussian(3.0), 10.0, math.inf),
    dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.9, 0.1]),
    dp_event.TruncatedSubsampledGaussianDpEvent(1000, 0.1, 120, 1.0),
    zcdp(1 / 3),
    approximate_dp(1 / 3, 1e-300),
    rdp([1.5, 8.0, math.inf], [0.1, math.inf, 7.0]),
    ProfileDpEvent((0.0, 1 / 3), (0.1 + 0.2, 1e-300)),
    ProfileDpEvent((0.0, 1.0), (0.3, 0.1), (0.3, 0.0)),
    compose(worst_case(SGD, gaussian(np.float64(5.0))), zcdp(0.1), pure_dp(0.25)),
    compose(bounded_range(0.25), SGD),
    PrivateSelectionDpEvent(SGD, Geometric(mean=10)),
    PrivateSelectionDpEvent(
        compose(SGD, gaussian(9)), NegativeBinomial(shape=0.5, gamma=0.1), (0.9, 1.25), "data"
    ),
    compose(PrivateSelectionDpEvent(SGD, Poisson(mean=7.5).capped(30)), gaussian(3.0)),
    PrivateSelectionDpEvent(SGD, Binomial(n=20, mean=5)),
    PrivateSelectionDpEvent(SGD, Logarithmic(mean=10)),
]


class TestJson:
    @pytest.mark.parametrize("event", TREES, ids=lambda event: type(event).__name__)
    def test_round_trip_is_exact(self, event: Any) -> None:
        text = json.dumps(event_to_json(event), allow_nan=False)
        again = event_from_json(json.loads(text))
        assert again == event
        assert type(again) is type(event)
        assert canonical_key(again) == canonical_key(event)

    def test_equal_events_have_equal_keys_and_others_do_not(self) -> None:
        assert canonical_key(gaussian(1)) == canonical_key(gaussian(np.float64(1.0)))
        keys = {canonical_key(event) for event in TREES}
        assert len(keys) == len(TREES)

    def test_unknown_classes_are_not_written(self) -> None:
        class Impostor(dp_event.DpEvent):  # type: ignore[misc]
            pass

        for event in (
            Impostor(),
            dp_event.UnsupportedDpEvent(),
            compose(SGD, dp_event.UnsupportedDpEvent()),
        ):
            with pytest.raises(UnsupportedEventError):
                event_to_json(event)

    def test_a_class_that_borrows_a_name_is_not_written(self) -> None:
        impostor = type("GaussianDpEvent", (dp_event.DpEvent,), {"noise_multiplier": 1.0})
        with pytest.raises(UnsupportedEventError):
            event_to_json(impostor())

    def test_a_field_that_a_later_dp_accounting_adds_is_not_ignored(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        @attr.s(frozen=True, auto_attribs=True)
        class GaussianDpEvent(dp_event.DpEvent):  # type: ignore[misc]
            noise_multiplier: float
            norm: str = "l2"

        monkeypatch.setattr(event_json, "FOREIGN_KINDS", [GaussianDpEvent])
        with refuses("event.norm"):
            event_to_json(GaussianDpEvent(4.0))

    def test_records_never_import(self) -> None:
        with pytest.raises(InvalidArgumentError) as caught:
            event_from_json({"type": "os.system", "module_name": "os"})
        assert caught.value.argument == "event.type"

    @pytest.mark.parametrize(
        ("path", "value", "field"),
        [
            ((), None, "event"),
            ((), [], "event"),
            (("type",), "Gaussian", "event.type"),
            (("events",), {}, "event.events"),
            (("events", 0), 3, "event.events[0]"),
            (("events", 0, "count"), 1.5, "event.events[0].count"),
            (("events", 0, "count"), True, "event.events[0].count"),
            (("events", 0, "event", "sampling_probability"), 2, "event.events[0].event.sampling"),
            (("events", 0, "event", "event", "noise_multiplier"), "x", "event.events[0].event.ev"),
            (("events", 0, "event", "event", "noise_multiplier"), math.nan, "event.events[0].eve"),
            (("events", 1, "epsilon"), -1, "event.events[1].epsilon"),
            (("events", 1, "delta"), 1, "event.events[1].delta"),
            (("events", 2, "trials"), "ten", "event.events[2].trials"),
            (("events", 2, "trials"), {"law": "none"}, "event.events[2].trials"),
            (("events", 2, "density_bounds"), [1, "x"], "event.events[2].density_bounds[1]"),
            (("events", 2, "density_bounds"), [2, 1], "event.events[2].density_bounds"),
            (("events", 2, "policy"), "none", "event.events[2].policy"),
            (("surplus",), 1, "event.surplus"),
        ],
    )
    def test_corruption_is_refused_naming_the_field(
        self, path: tuple[Any, ...], value: Any, field: str
    ) -> None:
        tree = compose(SGD, pure_dp(1.0), PrivateSelectionDpEvent(SGD, Geometric(mean=10)))
        record: Any = event_to_json(tree)
        if path:
            place = record
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = value
        else:
            record = value
        with pytest.raises(InvalidArgumentError) as caught:
            event_from_json(record)
        assert caught.value.argument.startswith(field)

    def test_every_missing_field_is_named(self) -> None:
        record = event_to_json(gaussian(1.0))
        del record["noise_multiplier"]
        with refuses("event.noise_multiplier"):
            event_from_json(record)

    def test_a_record_nested_without_end_is_refused(self) -> None:
        record: dict[str, Any] = {"type": "NoOpDpEvent"}
        for _ in range(5000):
            record = {"type": "SelfComposedDpEvent", "event": record, "count": 1}
        with pytest.raises(InvalidArgumentError) as caught:
            event_from_json(record)
        assert caught.value.argument.startswith("event.event.")
