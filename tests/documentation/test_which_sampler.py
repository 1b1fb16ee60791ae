"""The table of samplers on the front pages has the numbers that its script computes."""

from __future__ import annotations

import inspect
import runpy

import pytest

import optuna_dp as odp
from documentation.pages import ROOT

SCRIPT = runpy.run_path(str(ROOT / "examples" / "which_sampler.py"))
PAGES = ("README.md", "docs/index.md")


def test_the_pages_show_what_the_script_computes() -> None:
    numbers = SCRIPT["numbers"]()
    assert numbers == {
        "one run": "0.926",
        "four pilots and one run": "1.080, noise 4.00",
        "RandTune": "1.579, best 5 % with 0.51",
        "DP-HyPO": "2.027, best 5 % with at most 0.69",
        "RandTune at DP-HyPO's epsilon": "170 runs on average, best 5 % with 0.90",
        "propose-test": "1.052, 164,706 parts",
        "noisy max at the same epsilon": "228 parts",
    }


@pytest.mark.parametrize("page", PAGES)
def test_each_row_has_its_number(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    for beginning, shown in {
        "only learning rate": ("0.926",),
        "the model, features": ("1.080",),
        "nothing but the best": ("1.579", "0.51", "mean 20"),
        "the same, and computing": ("2.027", "0.69", "170 runs", "0.90", "between 0.75 and 2"),
        "trainings that cannot": ("1.052", "228 parts", "164,706"),
    }.items():
        (row,) = (line for line in text.splitlines() if line.startswith(f"| {beginning}"))
        assert all(number in row for number in shown), row


def test_the_script_has_the_defaults_of_the_samplers() -> None:
    for sampler in (odp.RandTuneSampler, odp.DPHyPOSampler):
        assert inspect.signature(sampler).parameters["trials"].default == odp.Geometric(mean=20)
    learning = inspect.signature(odp.DPHyPOSampler).parameters
    assert learning["density_bounds"].default == SCRIPT["BOUNDS"]
    assert learning["projection"].default == "kl"
