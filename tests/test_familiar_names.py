"""Arguments as other libraries name them are answered with the name that they have here."""

import pytest
from refusals import refuses

import optuna_dp as odp


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("target_epsilon", "epsilon=..."),
        ("n", "records=..."),
        ("sample_rate", "batch_size=..."),
        ("noise_multiplier", "odp.start_run(trial).noise_multiplier"),
        ("unheard_of", "epsilon=, delta=, records="),
    ],
)
def test_a_plan_says_how_an_argument_is_called_here(name: str, remedy: str) -> None:
    with refuses(name) as caught:
        odp.plan_budget(**{name: 3.0})
    assert remedy in caught.value.fix


def test_a_plan_by_position_names_the_arguments() -> None:
    with refuses("argument 1") as caught:
        odp.plan_budget(3.0, 1e-5, 1797)  # type: ignore[misc]
    assert "epsilon=..." in caught.value.fix


def test_a_missing_argument_stays_python_s_own_error() -> None:
    with pytest.raises(TypeError, match="epsilon"):
        odp.plan_budget()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("max_grad_norm", "clipping_norm=..."),
        ("lr", "learning_rate=..."),
        ("criterion", "loss=..."),
        ("epochs", ""),
        ("seed", ""),
        ("data_loader", "records="),
    ],
)
def test_a_training_says_how_an_argument_is_called_here(name: str, remedy: str) -> None:
    fixes = []
    for given in (name, "unheard_of"):
        with refuses(given) as caught:
            odp.train(None, odp.SoftmaxRegression(3, 2), None, **{given: 1})  # type: ignore[arg-type]
        fixes.append(caught.value.fix)
    assert remedy in fixes[0]
    assert fixes[0] != fixes[1]  # Which lists all arguments.


def test_a_loop_with_opacus_says_so_under_the_name_that_the_function_has() -> None:
    pytest.importorskip("opacus")
    for name, problem in (("unheard_of", "odp.opacus.make_private has no"), ("clipping", "norm")):
        with refuses(name) as caught:
            odp.opacus.make_private(None, **{name: "adaptive"})  # type: ignore[call-arg]
        assert problem in caught.value.why
