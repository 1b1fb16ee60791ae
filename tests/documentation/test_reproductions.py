"""The page of reproductions names scripts that exist, and the one command runs them all."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import optuna_dp as odp
from documentation.pages import ROOT

PAGE = (ROOT / "docs" / "explanation" / "reproductions.md").read_text()


def test_every_script_that_is_named_exists() -> None:
    named = re.findall(r"`(examples/[\w/]+\.py)", PAGE)
    assert len(named) > 8
    for name in named:
        assert (ROOT / name).is_file(), name


@pytest.mark.slow
def test_the_comparisons_of_distributions_print_what_the_page_says(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "reproduce.py"), "--only", "laws"]
    subprocess.run([*command, "--output", str(tmp_path)], capture_output=True, check=True)
    made = {
        name: json.loads((tmp_path / f"{name}.json").read_text())
        for name in ("papernot_steinke", "koskela")
    }
    for name in ("geometric", "Poisson", "logarithmic"):
        row = made["papernot_steinke"][name]
        shown = [
            f"{e:.2f} ({r:.2f}), {100 * a:.1f} %"
            for e, r, a in zip(row["epsilon"], row["renyi"], row["accuracy"], strict=True)
        ]
        assert f"| {name} | {' | '.join(shown)} |" in PAGE
        assert all(e < r for e, r in zip(row["epsilon"], row["renyi"], strict=True))
    for name in ("geometric", "Poisson"):
        row = [made["koskela"][name][way][0] for way in ("rdp", "koskela", "ours", "attack")]
        assert f"| {name} | {' | '.join(f'{e:.3f}' for e in row)} |" in PAGE


@pytest.mark.slow
def test_the_one_command_runs_them(tmp_path: Path) -> None:
    """The propose-test ones; the others have tests of their own where their packages are."""
    found = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "reproduce.py"), "--output", str(tmp_path),
         "--only", "table_1"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "report-noisy-max" in found.stdout


@pytest.mark.slow
@pytest.mark.parametrize("bounds", [[0.9, 1.25], [0.75, 2.0]])
def test_the_figures_of_choosing_a_law_have_todays_bounds(bounds: list[float]) -> None:
    data = json.loads((ROOT / "docs" / "_static" / "choosing.json").read_text())
    (points,) = [entry["points"] for entry in data["adaptive"] if entry["bounds"] == bounds]
    (drawn,) = [point["epsilon"] for point in points if point["mean"] == 10]
    found = odp.selection_guarantee(
        odp.dp_sgd(**data["base"]), odp.Geometric(10), density_bounds=tuple(bounds)
    )
    assert found.epsilon(data["delta"]) == pytest.approx(drawn, rel=1e-6)


BUDGETS = json.loads((ROOT / "examples" / "dp_hypo" / "results" / "budgets.json").read_text())
# Records, noise of GP and of Uniform: DP-HyPO's appendix E.
APPENDIX_E = {"E.1": (60_000, 0.71, 0.64), "E.2": (50_000, 0.65, 0.6)}


def costs_of(setting: str, gamma: float) -> tuple[dict[str, float], dict[str, float]]:
    """What is stored of the adaptive arm and of the uniform one."""
    _, adaptive_noise, uniform_noise = APPENDIX_E[setting]
    return (
        BUDGETS[f"{setting}, noise {adaptive_noise}, (c, C)=(0.75, 2.0), gamma {gamma}"],
        BUDGETS[f"{setting}, noise {uniform_noise}, (c, C)=(1.0, 1.0), gamma {gamma}"],
    )


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["E.1", pytest.param("E.2", marks=pytest.mark.slow)])
def test_the_costs_of_appendix_e_have_todays_bounds(setting: str) -> None:
    records, adaptive_noise, uniform_noise = APPENDIX_E[setting]
    arms = ((adaptive_noise, (0.75, 2.0)), (uniform_noise, (1.0, 1.0)))
    for (noise, bounds), stored in zip(arms, costs_of(setting, 0.03), strict=True):
        run = odp.dp_sgd(
            noise_multiplier=noise, sample_rate=256 / records, steps=-(-10 * records // 256)
        )
        found = odp.selection_guarantee(run, odp.Geometric(1 / 0.03), density_bounds=bounds)
        today = found.by_method(1e-5)
        # What is stored is what the page compares; another bound may not be below all of it.
        assert {name: today[name] for name in stored} == pytest.approx(stored, abs=6e-4)
        assert found.epsilon(1e-5) == pytest.approx(min(stored.values()), abs=6e-4)


def test_the_page_prints_the_costs_of_appendix_e_that_are_stored() -> None:
    page = (ROOT / "examples" / "dp_hypo" / "README.md").read_text()
    for setting in APPENDIX_E:
        for gamma in (0.001, 0.01, 0.03):
            adaptive, uniform = costs_of(setting, gamma)
            shown = [adaptive["theorem_1"], adaptive["history_profile"]]
            shown += [uniform["rdp"], uniform["data_profile"]]
            row = f"| {setting}, gamma {gamma} | {' | '.join(f'{e:.2f}' for e in shown)} |"
            assert row in page


# Gamma and what the page prints of one epoch: Theorem 1, GP today; Rényi, Uniform today.
ONE_EPOCH = {0.001: (12.08, 6.67, 10.81, 5.66), 0.03: (9.46, 4.15, 7.68, 4.40)}


@pytest.mark.slow
@pytest.mark.parametrize("gamma", ONE_EPOCH)
def test_the_costs_of_one_epoch_of_setting_e2_are_those_of_the_page(gamma: float) -> None:
    records, adaptive_noise, uniform_noise = APPENDIX_E["E.2"]
    found: list[float] = []
    for noise, bounds, method in (
        (adaptive_noise, (0.75, 2.0), "theorem_1"),
        (uniform_noise, (1.0, 1.0), "rdp"),
    ):
        run = odp.dp_sgd(
            noise_multiplier=noise, sample_rate=256 / records, steps=-(-records // 256)
        )
        guarantee = odp.selection_guarantee(run, odp.Geometric(1 / gamma), density_bounds=bounds)
        found += [guarantee.by_method(1e-5)[method], guarantee.epsilon(1e-5)]
    assert found == pytest.approx(ONE_EPOCH[gamma], abs=0.006)
    page = (ROOT / "examples" / "dp_hypo" / "README.md").read_text()
    shown = " | ".join(f"{epsilon:.2f}" for epsilon in ONE_EPOCH[gamma])
    assert f"| one epoch, as run here, gamma {gamma} | {shown} |" in page
