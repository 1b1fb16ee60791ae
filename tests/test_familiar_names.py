"""Arguments as other libraries name them are answered with the name that they have here."""

import pytest

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("target_epsilon", "Write epsilon="),
        ("n", "Write records="),
        ("sample_rate", "Write records=... and batch_size="),
        ("noise_multiplier", "the plan computes it"),
        ("unheard_of", "plan_budget has no such argument. It has epsilon=, delta=, records="),
    ],
)
def test_a_plan_says_how_an_argument_is_called_here(name: str, says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=name) as caught:
        odp.plan_budget(**{name: 3.0})
    assert says in str(caught.value)


def test_a_plan_by_position_names_the_arguments() -> None:
    with pytest.raises(InvalidArgumentError, match=r"takes it by name.*Write epsilon="):
        odp.plan_budget(3.0, 1e-5, 1797)  # type: ignore[misc]


def test_a_missing_argument_stays_python_s_own_error() -> None:
    with pytest.raises(TypeError, match="epsilon"):
        odp.plan_budget()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("max_grad_norm", "Write clipping_norm="),
        ("lr", "Write learning_rate="),
        ("criterion", "Write loss="),
        ("epochs", "the plan decides it"),
        ("seed", "the operating system"),
        ("data_loader", "the data set itself"),
    ],
)
def test_a_training_says_how_an_argument_is_called_here(name: str, says: str) -> None:
    model = odp.SoftmaxRegression(3, 2)
    with pytest.raises(InvalidArgumentError, match=name) as caught:
        odp.train(None, model, None, **{name: 1})  # type: ignore[arg-type]
    assert says in str(caught.value)
