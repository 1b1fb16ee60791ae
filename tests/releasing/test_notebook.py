"""What notebooks show: the same numbers, as HTML that is well formed and safe."""

from __future__ import annotations

from xml.etree import ElementTree

import optuna
import pytest

import optuna_dp as odp

PLAN = odp.plan_budget(epsilon=3.0, delta=1e-5, records=1348, batch_size=1348, epochs=1)


def text(shown: object) -> str:
    page = shown._repr_html_()  # type: ignore[attr-defined]
    return " ".join(ElementTree.fromstring(f"<div>{page}</div>").itertext())


def test_a_guarantee() -> None:
    page = text(odp.Guarantee(odp.gaussian(noise_multiplier=4.0)))
    assert "0.927" in page  # rounded up
    assert "Gaussian noise of 4 times the sensitivity" in page


def test_a_budget_is_shown_with_every_rung() -> None:
    page = text(PLAN)
    for count in PLAN.rung_sizes:
        assert f"{count} pilots" in page
    assert f"{PLAN.final.noise_multiplier:.4g}" in page


@pytest.mark.parametrize("name", ["x", "<script>alert(1)</script>"])
def test_a_release_has_its_values_and_no_markup_of_others(name: str) -> None:
    study = optuna.create_study(
        sampler=odp.RandTuneSampler(trials=odp.Binomial(1, mean=1), run=odp.gaussian(4.0))
    )
    study.optimize(lambda trial: trial.suggest_float(name, 0, 1))
    release = odp.release(study, vouched="a test")
    assert release.params is not None
    assert f"{name} {release.params[name]!r}" in text(release).replace("  ", " ")
    assert "<script>" not in release._repr_html_()


def test_a_release_without_a_result_says_so() -> None:
    study = optuna.create_study(
        sampler=odp.RandTuneSampler(trials=odp.Binomial(1, mean=1), run=odp.gaussian(4.0))
    )
    study.optimize(lambda trial: float("nan"))
    assert "nothing was chosen" in text(odp.release(study, vouched="a test"))
