"""The chaos tests tell who is at a trial from what workers write down: also of enqueued ones."""

from __future__ import annotations

import os

import optuna

from .workers import Diary, Fate, make_mortal


def test_whoever_takes_an_enqueued_trial_is_noted(tmp_path) -> None:
    path, lines = tmp_path / "diary", []
    storage = optuna.storages.InMemoryStorage()
    study = optuna.create_study(storage=storage)
    study.enqueue_trial({})  # By somebody who writes nothing down.
    make_mortal(storage, Fate(None), lines.append)
    ids = [study.ask()._trial_id, study.ask()._trial_id]
    path.write_text("".join(f"{os.getpid()} {line}\n" for line in lines))
    written = Diary.read(path)
    assert written.takers == dict.fromkeys(ids, os.getpid())
    assert not written.taking
