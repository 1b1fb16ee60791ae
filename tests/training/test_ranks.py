"""One training by several processes, which ``torchrun`` starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from patience import PATIENCE

torch = pytest.importorskip("torch")

from ranks_script import LanguageModel  # noqa: E402

SCRIPT = Path(__file__).with_name("ranks_script.py")
COMPLETE, FAIL = TrialState.COMPLETE, TrialState.FAIL


def started(folder: Path, what: str, *files: Path, ranks: int) -> subprocess.CompletedProcess[str]:
    """Runs the script in a number of processes, and returns how it ended."""
    folder.mkdir()
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return subprocess.run(
        [
            sys.executable,
            *(launch if ranks > 1 else []),
            str(SCRIPT),
            what,
            str(folder),
            *map(str, files),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process trains with the same draws."""
    folder = tmp_path_factory.mktemp("ranks") / "one"
    ended = started(folder, "alike", ranks=1)
    assert ended.returncode == 0, ended.stderr
    return folder


def numbers(folder: Path, model: str, rank: int = 0) -> dict[str, np.ndarray]:
    with np.load(folder / f"{model}-{rank}.npz") as stored:
        return dict(stored)


def states_of(folder: Path) -> list[TrialState]:
    storage = JournalStorage(JournalFileBackend(str(folder / "journal.log")))
    study = optuna.load_study(study_name="runs", storage=storage)
    return [trial.state for trial in study.trials]


@pytest.mark.slow
@pytest.mark.promise("gradients")
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_train_the_weights_of_one_process(
    tmp_path: Path, one_process: Path, ranks: int
) -> None:
    several = tmp_path / "several"
    ended = started(several, "alike", ranks=ranks)
    assert ended.returncode == 0, ended.stderr
    for model in ("mlp", "softmax", "cnn", "lora"):
        for rank in range(ranks):
            of_rank = numbers(several, model, rank)
            np.testing.assert_array_equal(
                of_rank["weights"], numbers(one_process, model)["weights"]
            )
            assert of_rank["hyperparameter"] == numbers(several, model)["hyperparameter"]
        statement = (several / f"{model}.md").read_text()
        assert f"in each of {ranks} processes" in statement


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads what is mapped from Linux")
def test_ranks_copy_nothing_of_frozen_weights_that_are_mapped_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "frozen.pt"
    model = LanguageModel()
    torch.save(
        {
            name: w
            for name, w in model.state_dict().items()
            if "down" not in name and "up" not in name
        },
        file,
    )
    ended = started(tmp_path / "study", "mapped", file, ranks=2)
    assert ended.returncode == 0, ended.stderr
    copied = [(tmp_path / "study" / f"copied-{rank}.txt").read_text() for rank in range(2)]
    assert copied == ["0", "0"]


@pytest.mark.slow
@pytest.mark.promise("one of several ranks dies")
@pytest.mark.parametrize("what", ["killed", "leaving"])
def test_a_rank_that_dies_fails_the_run_and_ends_the_study(tmp_path: Path, what: str) -> None:
    ended = started(tmp_path / "study", what, ranks=2)
    assert ended.returncode != 0
    assert states_of(tmp_path / "study") == [COMPLETE, FAIL]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["failing", "odd"])
def test_an_error_of_one_rank_fails_the_run_and_the_study_goes_on(
    tmp_path: Path, what: str
) -> None:
    ended = started(tmp_path / "study", what, ranks=2)
    assert ended.returncode == 0, ended.stderr
    assert states_of(tmp_path / "study") == [COMPLETE, FAIL, COMPLETE, COMPLETE]


@pytest.mark.slow
@pytest.mark.promise("ranks hold other records")
def test_ranks_with_records_in_another_order_are_refused(tmp_path: Path) -> None:
    ended = started(tmp_path / "study", "shuffled", ranks=2)
    assert ended.returncode != 0
    assert "the same records at the same places" in ended.stderr
