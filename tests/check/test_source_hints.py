"""``check`` hints at what the source shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from optuna_dp.check.source_hints import hints_in_source
from optuna_dp.cli.application import app

FAULTS = {
    "fitted preprocessing": "x = StandardScaler().fit_transform(x)",
    "values of the records": "model = nn.Linear(8, len(np.unique(y)))",
    "split of the records": "a, b = train_test_split(x, stratify=y, random_state=0)",
    "checkpoint": "model.load_state_dict(best)",
    "early stop": "trainer = Trainer(callbacks=[EarlyStopping('val_loss')])",
    "literal seed": "model = LogisticRegression(epsilon=1.0, random_state=0)",
}


def test_what_is_fitted_in_a_line_of_its_own_is_a_hint() -> None:
    (hint,) = hints_in_source("scaler = StandardScaler().fit(x)\ny = scaler.transform(x)\n")
    assert "StandardScaler (line 1)" in hint.what


@pytest.mark.promise("prepared")
@pytest.mark.parametrize(
    "line",
    [
        "x = PCA(8).fit(x).transform(x)",
        "x = pd.get_dummies(frame)",
        "words = TfidfVectorizer().fit(texts)",
        "means = frame.groupby('city').income.mean()",
        "rates = frame.pivot_table(values='claim', index='city')",
        "weights = compute_class_weight('balanced', classes=CLASSES, y=y)",
        "norm = Normalization(); norm.adapt(x)",
    ],
)
def test_preparation_that_is_fitted_to_records_is_a_hint(line: str) -> None:
    (hint,) = hints_in_source(line)
    assert (hint.name, hint.certain) == ("fitted preprocessing", False)


OUTSIDE = {
    "values of the records": (
        "words = Counter(text.split())",
        "vocabulary = set(words)",
        "words = sorted(set(' '.join(texts).split()))",
        "codes = frame.city.astype('category').cat.codes",
        "model = nn.Embedding(frame['city'].nunique(), 8)",
        "def loss(output, target):\n    return one_hot(target, int(y.max()) + 1)",
        "x = pad_sequence(texts, batch_first=True)",
    ),
    "repeated records": (
        "x, y = SMOTE().fit_resample(x, y)",
        "rows = np.concatenate([np.arange(len(y)), np.repeat(rare, 5)])",
        "x = np.repeat(x[y == 2], 5, axis=0)",
        "frame = pd.concat([frame, frame[frame.y == 1]])",
        "frame = pd.concat([rare] * 5)",
        "x = resample(x, n_samples=500)",
        "frame = frame.sample(500, replace=True)",
        "rows = pd.concat([yes, no.sample(3 * len(yes))])",
    ),
    "rows made of other rows": (
        "x = np.stack([series[i : i + 8] for i in range(300)])",
        "for i in range(300):\n    rows.append(series[i : i + 8])",
        "class Windows:\n    def __getitem__(self, i):\n        return self.s[i : i + self.n]",
        "x = series.unfold(0, 8, 1)",
        "x = frame.rolling(7).sum()",
        "near = ((x[:, None] - x[None]) ** 2).sum(-1).argsort(1)",
    ),
    "records of one person": (
        "patient = frame.index // 10",
        "x = frame.drop(columns='y'); groups = frame['user_id']",
        "frame = frame.drop_duplicates('customer')",
    ),
    "statistics of the records": (
        "frame = frame.fillna(frame.median())",
        "def load(x):\n    return np.where(np.isnan(x), np.nanmean(x, axis=0), x)",
        "def load(x):\n    x[np.isnan(x)] = x.mean()\n    return x",
        "def load(x):\n    low, high = x.min(), x.max()\n    return (x - low) / (high - low)",
        "order = np.argsort(-x.var(0))",
        "d = frame.describe()\nschema = odp.Schema(age=(d.loc['min', 'age'], 80))",
        "weights = len(y) / (3 * np.bincount(y, minlength=3))",
        "shares = np.bincount(y, minlength=3) / len(y)",
        "x = x - x.mean(axis=0)",
    ),
}


@pytest.mark.parametrize(
    ("kind", "source"), [(kind, source) for kind, lines in OUTSIDE.items() for source in lines]
)
def test_preparation_outside_of_a_schema_is_a_hint(kind: str, source: str) -> None:
    (hint,) = hints_in_source(source)
    assert (hint.name, hint.certain) == (kind, False)
    assert "(line" in hint.what


@pytest.mark.parametrize("kind", [*OUTSIDE, "fitted preprocessing"])
def test_a_hint_at_preparation_names_the_schema_or_each_record_once(kind: str) -> None:
    source = OUTSIDE.get(kind, ("x = StandardScaler().fit_transform(x)",))[0]
    (hint,) = hints_in_source(source)
    assert "odp.Schema" in hint.change or "schema.encode" in hint.change or "once" in hint.change
    assert "possible at all" not in hint.change


@pytest.mark.parametrize(
    "source",
    [
        "def f(rows):\n    return g(rows)\n"
        "def g(rows):\n    return StandardScaler().fit_transform(rows)\n"
        "table = schema.encode(frame, prepare=f)",
        "table = schema.encode(frame, prepare=lambda rows: rows.fillna(rows.mean()))",
        "from diffprivlib.models import PCA\nx = PCA(4, epsilon=1.0).fit_transform(x)",
        "import diffprivlib.models as m\ns = m.StandardScaler(epsilon=1)\nx = s.fit_transform(x)",
        "model = ExplainableBoostingClassifier(epsilon=1.0)\nmodel.fit(x, y)",
        "scaler = StandardScaler()\nscaler.fit(public_x)\nx = scaler.transform(x)",
        "frame = pd.read_csv('public/census.csv')\nlow, high = frame.age.min(), frame.age.max()",
        "inputs = odp.made_up_inputs(8)\nspread = inputs.std(0)",
        "def test_classes():\n    classes = np.unique(predict(x))",
        "assert set(np.unique(y)) <= {0, 1}",
        "per_class = np.bincount(predictions)",
        "release = odp.release(study)\nclasses = np.unique(y)",
        "def main():\n    release = odp.release(study)\n    spread = x.std(0)",
        "x = Normalizer().fit_transform(x)",
        "encoder = OneHotEncoder(categories=[PLACES])\nx = encoder.fit_transform(x)",
        "x = pd.get_dummies(pd.Categorical(city, categories=CITIES))",
        "codes = frame.city.astype(CITY).cat.codes",
        "x = x / x.max(axis=1, keepdims=True)",
        "class Images:\n    def __getitem__(self, i):\n        z = self.x[i]\n"
        "        return (z - z.mean()) / z.std()",
        "def r2(y, guess):\n    return 1 - ((y - guess) ** 2).mean() / y.var()",
        "noisy = (np.bincount(y, minlength=3) + noise) / len(y)",
        "frame = frame.fillna(0)",
        "x = np.stack([series[i : i + 8] for i in range(0, 300, 8)])",
        "batches = [x[i : i + 64] for i in range(0, len(x), 64)]",
        "labels = np.repeat(np.arange(3), 100)",
        "features = np.concatenate([x, x[:, :1]], axis=1)",
        "table = odp.Schema(age=(20, 80), unit='patient').encode(frame[['patient', 'age']])",
        "rows.append([x, x[0]])",
        "known = set(WORDS)",
        "names = sorted(set(files))",
        "odp.describe(study, unit='patient', most=1)",
        "frame = frame.sample(frac=1.0)",
        "some = random.sample(range(len(x)), 100)",
        "frame = frame.drop_duplicates()",
    ],
)
def test_what_prepares_no_private_records_gives_no_hint(source: str) -> None:
    assert hints_in_source(source) == []


def test_what_is_fitted_before_prepare_is_a_hint() -> None:
    (hint,) = hints_in_source(
        "scaler = StandardScaler().fit(frame)\n"
        "table = schema.encode(frame, prepare=lambda rows: scaler.transform(rows))"
    )
    assert "StandardScaler (line 1)" in hint.what


def test_a_public_scale_makes_no_records_public() -> None:
    (hint,) = hints_in_source("x = torch.tensor(x / PUBLIC_SCALE)\nx = PCA(4).fit(x).transform(x)")
    assert "PCA (line 2)" in hint.what


@pytest.mark.parametrize(
    "line",
    [
        "trainer = Trainer(args=TrainingArguments(load_best_model_at_end=True))",
        "callbacks = [ModelCheckpoint('best.keras', save_best_only=True)]",
    ],
)
def test_a_library_that_keeps_the_best_model_is_a_hint(line: str) -> None:
    (hint,) = hints_in_source(line)
    assert (hint.name, hint.certain) == ("checkpoint", False)


def test_the_best_of_several_studies_is_a_hint() -> None:
    loop = """
def main():
    releases = []
    for model in ("linear", "tree"):
        study = optuna.create_study(sampler=odp.BudgetSampler(PLAN))
        study.optimize(objectives[model])
        releases.append(odp.release(study))
    best = max(releases, key=lambda release: release.value)
"""
    by_hand = """
a, b = optuna.create_study(), optuna.create_study()
if odp.release(a).value > odp.release(b).value:
    keep(a)
"""
    for source in (loop, by_hand):
        (hint,) = hints_in_source(source)
        assert (hint.name, hint.certain) == ("several studies", False)
    assert not hints_in_source(loop.replace("max(releases", "print(releases"))


def test_a_seed_by_name_is_a_hint() -> None:
    (hint,) = hints_in_source("SEED = 42\ntorch.manual_seed(SEED)\n")
    assert (hint.name, hint.certain) == ("literal seed", False)
    assert "line 2" in hint.what


@pytest.mark.parametrize(("kind", "line"), FAULTS.items(), ids=FAULTS)
def test_each_kind_is_a_hint_with_its_line(kind: str, line: str) -> None:
    (hint,) = hints_in_source(f"import something\n{line}\n")
    assert (hint.name, hint.certain) == (kind, False)
    assert "line 2" in hint.what


@pytest.mark.parametrize(
    "line",
    [
        "rng = np.random.default_rng()",
        "torch.manual_seed(secret)",
        "model.fit(x, y)",
        "torch.save(model.state_dict(), 'model.pt')",
        "public = torch.load('public.pt')\nmodel.load_state_dict(public)",
        "release = odp.release(study)\nmodel.load_state_dict(torch.load('curator.pt'))",
        "x = x / 16",
        "encoder = OneHotEncoder(categories=[PLACES])",
        "if len(np.unique(y)) < 2:\n    raise optuna.TrialPruned",
        "this is no Python",
    ],
)
def test_honest_lines_give_no_hint(line: str) -> None:
    assert hints_in_source(line) == []


EPOCHS = """
for epoch in range(50):
    for x, y in loader:
        loss(model(x), y).backward()
        optimizer.step()
"""
BEST = (
    "    if accuracy > best:\n        best, state = accuracy, copy.deepcopy(model.state_dict())\n"
)
STOP = "    if waited > 5:\n        break\n"


@pytest.mark.promise("all-steps")
@pytest.mark.parametrize(
    ("lines", "kind"), [(BEST, "checkpoint"), (STOP, "early stop")], ids=["best", "stop"]
)
def test_a_training_loop_that_looks_at_its_score_is_a_hint(lines: str, kind: str) -> None:
    (hint,) = hints_in_source(EPOCHS + lines)
    assert (hint.name, hint.certain) == (kind, False)
    assert "line 6" in hint.what


def test_a_training_that_is_given_its_batch_size_is_read() -> None:
    lines = EPOCHS + BEST + "model.load_state_dict(state)\n"
    indented = "".join(f"    {line}\n" for line in lines.splitlines())
    (hint,) = hints_in_source(f"def train(rate, batch):\n{indented}")
    assert hint.name == "checkpoint"
    assert hint.what.startswith("load_state_dict, weights kept on a condition (lines 7, 9).")


@pytest.mark.parametrize(
    "source",
    [
        EPOCHS,
        EPOCHS + "if not run.is_pilot:\n    torch.save(model.state_dict(), 'model.pt')\n",
        "for x in grid:\n" + STOP,  # no training
    ],
    ids=["plain", "saved after it", "a search"],
)
def test_a_training_loop_that_takes_all_its_steps_gives_no_hint(source: str) -> None:
    assert hints_in_source(source) == []


KEEPS = {
    "an item": "    if accuracy > BEST['score']:\n        BEST['state'] = weights\n",
    "an update": "    if accuracy > BEST['score']:\n        BEST.update(state=weights)\n",
    "a global": "    global best\n    if loss < best:\n        best = loss\n",
    "the larger": "    global best\n    best = max(best, accuracy)\n",
}


@pytest.mark.parametrize("kind", KEEPS)
def test_an_objective_that_keeps_the_better_of_two_runs_is_a_hint(kind: str) -> None:
    (hint,) = hints_in_source("def objective(trial):\n" + KEEPS[kind])
    assert (hint.name, hint.certain) == ("kept across runs", False)


@pytest.mark.parametrize(
    "source",
    [
        "def objective(trial):\n    best = 0\n    for a in steps:\n        best = max(best, a)\n",
        "def objective(trial):\n    if not run.is_pilot:\n        MODELS['last'] = weights\n",
        "def objective(trial):\n    if depth > 3:\n        trial.suggest_float('x', 0, 1)\n",
        "def train(rate):\n    if loss < best['loss']:\n        best['loss'] = loss\n",
        "def objective(trial):\n    MODELS[trial.number] = train()\n",
    ],
)
def test_what_a_run_keeps_for_itself_gives_no_hint(source: str) -> None:
    assert hints_in_source(source) == []


def test_a_size_that_is_the_length_of_an_array_is_a_hint() -> None:
    for size in ("len(y)", "y.shape[0]"):
        (hint,) = hints_in_source(f"run.score(right, size={size})\n")
        assert (hint.name, hint.certain) == ("size of the score", False)
    for line in (
        "run.score(right, size=RECORDS)",
        "run.score(right, size=self.size)",
        "private_accuracy(right, size=1000)",
        "rng.normal(size=len(y))",
    ):
        assert hints_in_source(line + "\n") == []


def test_the_command_reads_the_whole_file(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import random\n"
        "class Scaler:\n"
        "    def fit_transform(self, x): return x\n"
        "x = Scaler().fit_transform([1.0])\n"
        "def objective(trial):\n"
        "    return trial.suggest_float('x', 0, 1) + random.gauss(0, 1)\n"
    )
    done = CliRunner().invoke(app, ["check", f"{script}:objective"])
    assert "hint  fitted preprocessing: fit_transform (line 4)" in done.stdout
    assert done.exit_code == 0


@pytest.mark.promise("public-numbers")
@pytest.mark.parametrize(
    "line",
    [
        "bounds = (x.min(0) * 0.9, x.max(0) * 1.1)",
        "high = np.quantile(x, 0.99, axis=0)",
        "high = x.mean(0) + 3 * x.std(0)",
        "x = (x - x.mean(0)) / x.std(0)",
        "if True:\n    low: float = np.percentile(x, 1)",
        "model = GaussianNB(bounds=(np.min(x) - 1, np.max(x) + 1))",
        "def load():\n    return (x - x.mean()) / x.std()",
        "def load(x):\n    spread = np.std(x, axis=0)\n    return x / spread",
        "def load(x):\n    return x / x.max(0)",
    ],
)
def test_bounds_that_are_computed_from_an_array_are_a_hint(line: str) -> None:
    (hint,) = hints_in_source(line)
    assert (hint.name, hint.certain) == ("statistics of the records", False)


@pytest.mark.parametrize(
    "source",
    [
        "workers = min(4, cores)",
        "def accuracy(model):\n    guess = model(x).max(1)\n    return guess\n",
        "average = scores.mean()",
        "def average(scores):\n    return scores.mean(), scores.std()",
        "print(scores.mean() - scores.std())",
        "low = dp.tools.quantile(x, 0.01, epsilon=0.1, bounds=(0, 120))",
        "if __name__ == '__main__':\n    spread = scores.max() - scores.min()\n",
    ],
)
def test_what_is_no_bound_of_records_gives_no_hint(source: str) -> None:
    assert hints_in_source(source) == []


@pytest.mark.parametrize(
    "line",
    [
        "print(study.best_params)",
        "study.trials_dataframe().to_csv('trials.csv')",
        "for trial in study.trials:\n    print(trial)",
        "optuna.visualization.plot_slice(study).show()",
        "def show(study, trial):\n    print(study.best_value)",
    ],
)
def test_results_that_are_not_released_are_a_hint(line: str) -> None:
    (hint,) = hints_in_source(line)
    assert (hint.name, hint.certain) == ("unreleased results", False)
    assert hints_in_source(f"{line}\nrelease = odp.release(study)\n") == []


@pytest.mark.promise("cost-of-a-run")
def test_a_hyperparameter_that_is_called_epsilon_is_a_hint() -> None:
    (hint,) = hints_in_source("e = trial.suggest_float('epsilon', 0.1, 2.0)")
    assert (hint.name, hint.certain) == ("searched cost", False)
    assert (
        hints_in_source(
            "e = trial.suggest_float('epsilon', 0.1, 2.0)\nevent = odp.worst_case(*events)"
        )
        == []
    )
    assert hints_in_source("e = trial.suggest_float('noise', 0.1, 2.0)") == []
    assert hints_in_source("e = trial.suggest_float('adam_epsilon', 1e-9, 1e-7)") == []


PRUNED = """
def objective(trial):
    width = trial.suggest_int("width", 1, 9)
    accuracy = {score}
    if {test}:
        raise optuna.TrialPruned()
    print(accuracy)
    return accuracy
"""


@pytest.mark.parametrize(
    ("score", "test", "expected"),
    [
        ("(predicted == y).mean()", "accuracy < 0.5", {"early stop", "shown without noise"}),
        ("(predicted == y).mean()", "width > 5", {"shown without noise"}),
        ("run.score(predicted == y)", "accuracy < 0.5", set()),
        ("odp.train(run, model, records).score", "accuracy < 0.5", set()),
    ],
)
def test_an_exact_accuracy_that_prunes_or_is_shown_is_a_hint(
    score: str, test: str, expected: set[str]
) -> None:
    hints = hints_in_source(PRUNED.format(score=score, test=test))
    assert {hint.name for hint in hints} == expected
