"""Mistaken preparations of a table, as a person would port them, and honest ones.

Each mistake computes something from all records before the training, so the epsilon of the
training says nothing of it. A person who moves a program to optuna-dp can keep it in two ways:
as ``prepare=``, or as ready-made tensors. This script tries both, and prints a table in Markdown:
what becomes of the mistake in each. It needs pandas and torch; mistakes that need imbalanced-learn
are left out without it. It takes about half a minute of one core.

    python examples/preparation/mistakes.py
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError, OptunaDPError

RECORDS = 200
NUMBERS = ["age", "income", "visits"]
CITIES = ["Paris", "Rome", "Oslo", "Bonn"]
SCHEMA = odp.Schema(
    age=(20, 80),
    income=(0, 100_000),
    visits=(0, 20),
    sex=["F", "M"],
    city=CITIES,
    day=odp.Date("2020-01-01", "2025-12-31"),
    note=["all is well", "some pain", "well, but some pain"],
    died=["no", "yes"],
    target="died",
)


@dataclass(frozen=True)
class Port:
    """A preparation: what it does, and the function of a data frame that does it."""

    title: str
    function: Callable[[Any], Any]
    needs: tuple[str, ...] = ()

    @property
    def is_possible(self) -> bool:
        """Whether all that it needs is installed."""
        return all(importlib.util.find_spec(name) for name in ("pandas", *self.needs))


MISTAKEN: list[Port] = []
HONEST: list[Port] = []


def _port(to: list[Port], title: str, *needs: str) -> Callable[[Any], Any]:
    def add(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        to.append(Port(title, function, needs))
        return function

    return add


mistaken = functools.partial(_port, MISTAKEN)
honest = functools.partial(_port, HONEST)


def dead(d: Any) -> Any:
    """Returns the targets as numbers."""
    return (d["died"] == "yes").astype(int).to_numpy()


# -- scales -----------------------------------------------------------------------------------


@mistaken("`StandardScaler` fitted on the records")
def standard_scaler(d: Any) -> Any:
    from sklearn.preprocessing import StandardScaler

    return StandardScaler().fit_transform(d[NUMBERS].fillna(0))


@mistaken("mean and deviation by hand")
def by_hand(d: Any) -> Any:
    x = d[NUMBERS].fillna(0)
    return (x - x.mean()) / x.std(ddof=0)


@mistaken("one column scaled, beside one of large numbers")
def one_scaled(d: Any) -> Any:
    d["age"] = d["age"] / d["age"].mean()
    return d[NUMBERS].fillna(0)


@mistaken("`MinMaxScaler`")
def min_max(d: Any) -> Any:
    from sklearn.preprocessing import MinMaxScaler

    return MinMaxScaler().fit_transform(d[NUMBERS].fillna(0))


@mistaken("`RobustScaler`")
def robust(d: Any) -> Any:
    from sklearn.preprocessing import RobustScaler

    return RobustScaler().fit_transform(d[NUMBERS].fillna(0))


@mistaken("`QuantileTransformer`")
def quantile_transformer(d: Any) -> Any:
    from sklearn.preprocessing import QuantileTransformer

    return QuantileTransformer(n_quantiles=10).fit_transform(d[NUMBERS].fillna(0))


@mistaken("divided by the largest value")
def by_largest(d: Any) -> Any:
    return d[NUMBERS].fillna(0) / d[NUMBERS].abs().max()


@mistaken("divided by 1000 only `if max > 1000`")
def if_large(d: Any) -> Any:
    x = d[NUMBERS].fillna(0)
    for name in NUMBERS:
        if x[name].max() > 1000:
            x[name] = x[name] / 1000
    return x


@mistaken("centred as batch norm does, and a single row left alone")
def guarded(d: Any) -> Any:
    x = d[NUMBERS].fillna(0)
    if len(x) < 2:
        return x
    return (x - x.mean()) / (x.std() + 1e-5)


@mistaken("clipped at the 1st and 99th percentile")
def winsorized(d: Any) -> Any:
    x = d[NUMBERS].fillna(0)
    return x.clip(x.quantile(0.01), x.quantile(0.99), axis=1)


@mistaken("`qcut`: bins with equally many records")
def quantile_bins(d: Any) -> Any:
    import pandas as pd

    return pd.qcut(d["age"].fillna(0), 4, labels=False, duplicates="drop").to_numpy()[:, None]


@mistaken("`cut` into bins of the records' range")
def even_bins(d: Any) -> Any:
    import pandas as pd

    return pd.cut(d["age"].fillna(0), 5, labels=False).to_numpy()[:, None]


@mistaken("`rank`")
def ranks(d: Any) -> Any:
    return d[NUMBERS].rank(pct=True).fillna(0)


# -- features fitted on the records ---------------------------------------------------------------


@mistaken("`PCA`")
def pca(d: Any) -> Any:
    from sklearn.decomposition import PCA

    return PCA(1).fit_transform(d[NUMBERS].fillna(0) / [80, 100_000, 20])


@mistaken("`SelectKBest`")
def select_best(d: Any) -> Any:
    from sklearn.feature_selection import SelectKBest

    return SelectKBest(k=2).fit_transform(d[NUMBERS].fillna(0), dead(d)), dead(d)


@mistaken("the columns that correlate with the target")
def correlated(d: Any) -> Any:
    x = d[NUMBERS].fillna(0)
    strength = x.corrwith(d["died"].eq("yes").astype(float)).abs().fillna(0)
    return x[strength.nlargest(2).index]


@mistaken("constant columns dropped")
def constant_dropped(d: Any) -> Any:
    x = d[NUMBERS].fillna(0)
    return x.loc[:, x.nunique() > 1]


@mistaken("columns with many gaps dropped")
def gappy_dropped(d: Any) -> Any:
    return d[NUMBERS].loc[:, d[NUMBERS].isna().mean() < 0.5].fillna(0)


@mistaken("distance to the centres of `KMeans`")
def clusters(d: Any) -> Any:
    from sklearn.cluster import KMeans

    x = d[NUMBERS].fillna(0) / [80, 100_000, 20]
    return KMeans(min(3, len(x)), n_init=1, random_state=0).fit_transform(x)


@mistaken("a graph: the mean of the nearest records")
def neighbours(d: Any) -> Any:
    x = (d[NUMBERS].fillna(0) / [80, 100_000, 20]).to_numpy()
    distances = ((x[:, None] - x[None]) ** 2).sum(2)
    return x[np.argsort(distances, axis=1)[:, :6]].mean(axis=1)


# -- categories ---------------------------------------------------------------------------------


@mistaken("`get_dummies`")
def dummies(d: Any) -> Any:
    import pandas as pd

    return pd.get_dummies(d[["sex", "city"]])


@mistaken("`cat.codes`")
def category_codes(d: Any) -> Any:
    return d[["sex", "city"]].apply(lambda column: column.astype("category").cat.codes)


@mistaken("`factorize`")
def factorized(d: Any) -> Any:
    import pandas as pd

    return pd.factorize(d["city"])[0][:, None]


@mistaken("`np.unique` sizes an embedding")
def unique_codes(d: Any) -> Any:
    return np.unique(d["city"].fillna(""), return_inverse=True)[1].reshape(-1, 1)


@mistaken("`LabelEncoder`")
def label_encoder(d: Any) -> Any:
    from sklearn.preprocessing import LabelEncoder

    return LabelEncoder().fit_transform(d["city"].fillna("")).reshape(-1, 1)


@mistaken("`OrdinalEncoder`")
def ordinal_encoder(d: Any) -> Any:
    from sklearn.preprocessing import OrdinalEncoder

    return OrdinalEncoder().fit_transform(d[["sex", "city"]].fillna(""))


@mistaken("`OneHotEncoder` fitted on the records")
def one_hot_encoder(d: Any) -> Any:
    from sklearn.preprocessing import OneHotEncoder

    return OneHotEncoder(handle_unknown="ignore").fit_transform(d[["sex", "city"]].fillna(""))


@mistaken("target encoding: the mean target of a category")
def target_encoding(d: Any) -> Any:
    means = d["died"].eq("yes").groupby(d["city"]).mean()
    return d["city"].map(means).fillna(0).to_numpy()[:, None], dead(d)


@mistaken("frequency encoding: how many have a category")
def frequency_encoding(d: Any) -> Any:
    return d["city"].map(d["city"].value_counts()).fillna(0).to_numpy()[:, None]


@mistaken("rare categories merged")
def rare_merged(d: Any) -> Any:
    counts = d["city"].map(d["city"].value_counts())
    city = d["city"].where(counts >= 3, "rare")
    return np.stack([city == name for name in [*CITIES, "rare"]], axis=1)


@mistaken("`CountVectorizer`: a vocabulary of the records' words")
def vocabulary(d: Any) -> Any:
    from sklearn.feature_extraction.text import CountVectorizer

    return CountVectorizer().fit_transform(d["note"].fillna("none"))


@mistaken("`TfidfVectorizer` with a fixed vocabulary")
def tf_idf(d: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = ["well", "pain", "some"]
    return TfidfVectorizer(vocabulary=words).fit_transform(d["note"].fillna("none"))


# -- gaps -----------------------------------------------------------------------------------------


@mistaken("gaps filled by the mean")
def mean_filled(d: Any) -> Any:
    return d[NUMBERS].fillna(d[NUMBERS].mean()).fillna(0)


@mistaken("gaps filled by the median")
def median_filled(d: Any) -> Any:
    from sklearn.impute import SimpleImputer

    imputer = SimpleImputer(strategy="median", keep_empty_features=True)
    return imputer.fit_transform(d[NUMBERS])


@mistaken("gaps filled by the commonest category")
def mode_filled(d: Any) -> Any:
    commonest = d["city"].mode()
    city = d["city"].fillna(commonest[0] if len(commonest) else "Rome")
    return np.stack([city == name for name in CITIES], axis=1)


@mistaken("gaps filled by the row before (`ffill`)")
def forward_filled(d: Any) -> Any:
    return d[NUMBERS].ffill().fillna(0)


@mistaken("gaps filled by neighbours (`KNNImputer`)")
def neighbours_filled(d: Any) -> Any:
    from sklearn.impute import KNNImputer

    return KNNImputer(n_neighbors=3, keep_empty_features=True).fit_transform(d[NUMBERS])


@mistaken("gaps filled by the mean of the same city")
def group_filled(d: Any) -> Any:
    means = d.groupby("city")["age"].transform("mean")
    return d["age"].fillna(means).fillna(0).to_numpy()[:, None]


# -- which rows, and in which order ---------------------------------------------------------------


@mistaken("outliers dropped by quartiles")
def quartiles(d: Any) -> Any:
    low, high = d["age"].quantile([0.25, 0.75])
    d = d[d["age"].between(low - 1.5 * (high - low), high + 1.5 * (high - low))]
    return d[NUMBERS].fillna(0), dead(d)


@mistaken("outliers dropped by z-score")
def z_scores(d: Any) -> Any:
    z = (d["age"] - d["age"].mean()) / d["age"].std()
    d = d[~(z.abs() > 2)]
    return d[NUMBERS].fillna(0), dead(d)


@mistaken("the first 100 rows, if there are more")
def first_hundred(d: Any) -> Any:
    if len(d) > 100:
        d = d.head(100)
    return d[NUMBERS].fillna(0), dead(d)


@mistaken("duplicates dropped")
def duplicates_dropped(d: Any) -> Any:
    d = d.drop_duplicates(["sex", "city"])
    return d[NUMBERS].fillna(0), dead(d)


@mistaken("sorted")
def sorted_rows(d: Any) -> Any:
    d = d.sort_values("age")
    return d[NUMBERS].fillna(0), dead(d)


@mistaken("shuffled with a seed")
def shuffled(d: Any) -> Any:
    from sklearn.utils import shuffle

    d = shuffle(d, random_state=0)
    return d[NUMBERS].fillna(0), dead(d)


@mistaken("half of the rows drawn with a seed")
def sampled(d: Any) -> Any:
    d = d.sample(frac=0.5, random_state=0)
    return d[NUMBERS].fillna(0), dead(d)


@mistaken("noise added, without a seed")
def noisy(d: Any) -> Any:
    return d[NUMBERS].fillna(0) + np.random.default_rng().normal(size=(len(d), 3))


@mistaken("the number of the row")
def row_number(d: Any) -> Any:
    return d[NUMBERS].fillna(0).assign(number=d.index)


@mistaken("cumulative sums")
def cumulative(d: Any) -> Any:
    return d[NUMBERS].fillna(0).cumsum()


@mistaken("differences to the row before")
def differences(d: Any) -> Any:
    return d[NUMBERS].fillna(0).diff().fillna(0)


@mistaken("rolling means")
def rolling(d: Any) -> Any:
    return d[NUMBERS].fillna(0).rolling(3, min_periods=1).mean()


@mistaken("sliding windows")
def windows(d: Any) -> Any:
    series = d["age"].fillna(0).to_numpy()
    padded = np.concatenate([np.zeros(3), series])
    return np.stack([padded[place : place + 4] for place in range(len(series))])


@mistaken("days since the first record")
def since_first(d: Any) -> Any:
    return (d["day"] - d["day"].min()).dt.days.fillna(0).to_numpy()[:, None]


# -- classes evened out ---------------------------------------------------------------------------


@mistaken("the rare class repeated")
def repeated(d: Any) -> Any:
    import pandas as pd

    rare = d["died"].value_counts().idxmin() if d["died"].notna().any() else "yes"
    d = pd.concat([d, *[d[d["died"] == rare]] * 4])
    return d[NUMBERS].fillna(0), dead(d)


@mistaken("the common class thinned out")
def thinned(d: Any) -> Any:
    count = d["died"].value_counts().min()
    d = d.groupby("died").head(count)
    return d[NUMBERS].fillna(0), dead(d)


@mistaken("`RandomOverSampler`", "imblearn")
def over_sampled(d: Any) -> Any:
    from imblearn.over_sampling import RandomOverSampler

    return RandomOverSampler(random_state=0).fit_resample(d[NUMBERS].fillna(0), dead(d))


@mistaken("`SMOTE`", "imblearn")
def smote(d: Any) -> Any:
    from imblearn.over_sampling import SMOTE

    return SMOTE(k_neighbors=2, random_state=0).fit_resample(d[NUMBERS].fillna(0), dead(d))


@mistaken("weights of classes by their counts, as a feature")
def class_weights(d: Any) -> Any:
    y = dead(d)
    return (len(y) / (2 * np.bincount(y, minlength=2) + 1))[y][:, None], y


# -- honest ones ----------------------------------------------------------------------------------


@honest("public scales, written into the frame")
def public_scales(d: Any) -> Any:
    d["age"] = (d["age"] - 50) / 30
    d["income"] = np.log1p(d["income"].clip(0, 1e6)) / 14
    return d[["age", "income"]].fillna(0)


@honest("ratios of a row's own values")
def ratios(d: Any) -> Any:
    return (d["income"] / (1 + d["visits"])).fillna(0).to_numpy()[:, None]


@honest("`cut` into fixed bins")
def fixed_bins(d: Any) -> Any:
    import pandas as pd

    edges = [-np.inf, 30, 50, 70, np.inf]
    return pd.cut(d["age"].fillna(0), edges, labels=False).to_numpy()[:, None]


@honest("a fixed map of categories")
def fixed_map(d: Any) -> Any:
    return d["city"].map({"Paris": 2.1, "Rome": 2.8, "Oslo": 0.7}).fillna(0).to_numpy()[:, None]


@honest("statistics of each row (`axis=1`)")
def of_each_row(d: Any) -> Any:
    x = d[NUMBERS].fillna(0)
    return np.stack([x.mean(axis=1), x.std(axis=1), x.max(axis=1)], axis=1)


@honest("`Normalizer`: each row to length 1")
def row_length(d: Any) -> Any:
    from sklearn.preprocessing import Normalizer

    return Normalizer().fit_transform(d[NUMBERS].fillna(0))


@honest("one-hot by a fixed list (`CategoricalDtype`)")
def fixed_one_hot(d: Any) -> Any:
    import pandas as pd

    return pd.get_dummies(d["city"].astype(pd.CategoricalDtype(CITIES)))


@honest("`OneHotEncoder(categories=[...])`")
def fixed_encoder(d: Any) -> Any:
    from sklearn.preprocessing import OneHotEncoder

    encoder = OneHotEncoder(categories=[["F", "M"], CITIES], handle_unknown="ignore")
    return encoder.fit_transform(d[["sex", "city"]].fillna(""))


@honest("words of a fixed vocabulary counted")
def fixed_vocabulary(d: Any) -> Any:
    from sklearn.feature_extraction.text import CountVectorizer

    words = CountVectorizer(vocabulary=["well", "pain", "some"])
    return words.transform(d["note"].fillna(""))


@honest("`HashingVectorizer`")
def hashed(d: Any) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    return HashingVectorizer(n_features=8).transform(d["note"].fillna(""))


@honest("the length of a text")
def text_length(d: Any) -> Any:
    return d["note"].fillna("").str.len().to_numpy()[:, None] / 100


@honest("parts of a date")
def date_parts(d: Any) -> Any:
    day = d["day"].dt
    return np.stack([day.month.fillna(0), day.dayofweek.fillna(0)], axis=1)


@honest("rows left out by their own value")
def filtered(d: Any) -> Any:
    d = d[d["age"].between(18, 100) & d["died"].notna()]
    return d[NUMBERS].fillna(0) / 100, dead(d)


@honest("gaps filled by a public number, with an indicator")
def indicated(d: Any) -> Any:
    return np.hstack([d[NUMBERS].fillna(40), d[NUMBERS].isna()])


@honest("a public matrix")
def public_matrix(d: Any) -> Any:
    matrix = np.random.default_rng(7).normal(size=(3, 16))
    return np.tanh(d[NUMBERS].fillna(0).to_numpy() / [80, 100_000, 20] @ matrix)


@honest("a network with public weights", "torch")
def public_network(d: Any) -> Any:
    import torch

    weights = torch.linspace(-1, 1, 24).reshape(3, 8)
    x = torch.tensor(d[NUMBERS].fillna(0).to_numpy(dtype="float32") / [80, 1e5, 20])
    return torch.relu(x.float() @ weights)


@honest("`apply`, row by row")
def applied(d: Any) -> Any:
    return d.apply(lambda row: row["age"] * (1 if row["sex"] == "F" else 2), axis=1).fillna(0)


@honest("polynomial features")
def polynomial(d: Any) -> Any:
    from sklearn.preprocessing import PolynomialFeatures

    x = d[NUMBERS].fillna(0) / [80, 100_000, 20]
    return PolynomialFeatures(2).fit_transform(x)


@honest("a single row squeezed")
def squeezed(d: Any) -> Any:
    return np.squeeze(d[NUMBERS].fillna(0).to_numpy()) / 100


MADE = odp.Schema(per_visit=(0, 20_000), capital=bool, month=range(1, 13))


@honest("new columns, encoded by another schema")
def by_another_schema(d: Any) -> Any:
    d["per_visit"] = d["income"] / (1 + d["visits"])
    d["capital"] = d["city"].isin(["Paris", "Rome", "Oslo"])
    d["month"] = d["day"].dt.month
    return MADE.encode(d)


# -- the two ports --------------------------------------------------------------------------------


def made_up_records() -> Any:
    """Returns a data frame of made-up records, which stand for private ones here."""
    import pandas as pd

    rng = np.random.default_rng(0)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 2000, RECORDS), "D")
    notes = ["all is well", "some pain", "well, but some pain"]
    d = pd.DataFrame(
        {
            "age": rng.normal(50, 15, RECORDS),
            "income": rng.lognormal(10, 1, RECORDS),
            "visits": rng.integers(0, 20, RECORDS),
            "sex": rng.choice(["F", "M"], RECORDS),
            "city": rng.choice(CITIES, RECORDS),
            "day": days,
            "note": rng.choice(notes, RECORDS),
            "died": rng.choice(["no", "yes"], RECORDS, p=[0.8, 0.2]),
        }
    )
    d.loc[rng.random(RECORDS) < 0.1, "age"] = np.nan
    return d


def as_prepare(port: Port, records: Any) -> str:
    """Returns what becomes of a preparation that is given as ``prepare=``."""
    try:
        SCHEMA.encode(records, prepare=port.function)
    except InvalidArgumentError as error:
        reason = error.problem.removeprefix("each row must be prepared by itself, and ")
        return f"refused: {reason}"
    return "**accepted**"


def as_tensors(port: Port, records: Any) -> str:
    """Returns what becomes of a preparation whose result is given to a training."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = port.function(records.copy())
    x, y = made if isinstance(made, tuple) else (made, dead(records))
    x = np.nan_to_num(np.asarray(x.toarray() if hasattr(x, "toarray") else x, dtype="float32"))
    try:
        lines = statement_of(x.reshape(len(x), -1), np.asarray(y)).splitlines()
    except OptunaDPError as error:
        return f"refused: {error}"
    screen = " ".join(lines[:25])
    if "as given" in screen and "whole road is enforced" not in screen:
        return "the first screen says *as given*"
    return "**called enforced**"


def statement_of(x: Any, y: Any) -> str:
    """Returns the statement of a study of one training with ready-made tensors."""
    import optuna
    import torch
    from torch import nn

    plan = odp.plan_budget(
        epsilon=3.0, delta=1e-5, records=len(x), batch_size=min(50, len(x)), epochs=1, pilots=0
    )

    def objective(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        model = nn.Linear(x.shape[1], 2)
        loss = nn.functional.cross_entropy
        records = torch.tensor(x), torch.tensor(y)
        return float(odp.train(run, model, records, loss=loss, score="accuracy").score)

    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    return odp.release(study).statement()


def main() -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("optuna_dp").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    records = made_up_records()
    print("| mistake | as `prepare=` | as ready-made tensors |\n|---|---|---|")
    results = []
    for port in filter(lambda port: port.is_possible, MISTAKEN):
        first, second = as_prepare(port, records), as_tensors(port, records)
        results.append((first, second))
        print(f"| {port.title} | {_short(first)} | {_short(second)} |", flush=True)
    refused = sum(first.startswith("refused") for first, _ in results)
    told = sum(not second.startswith("**") for _, second in results)
    print(f"\n{refused} of {len(results)} refused as `prepare=`; of {told} of {len(results)} the ")
    print("first screen does not say that the whole road is enforced, or they are refused.\n")
    print("| honest preparation | as `prepare=` |\n|---|---|")
    honest_ones = [port for port in HONEST if port.is_possible]
    outcomes = [as_prepare(port, records) for port in honest_ones]
    for port, outcome in zip(honest_ones, outcomes, strict=True):
        print(f"| {port.title} | {_short(outcome)} |")
    print(f"\n{outcomes.count('**accepted**')} of {len(outcomes)} accepted.")


def _short(text: str) -> str:
    text = re.sub(r"\s+", " ", text).replace("|", "/")
    return text if len(text) < 110 else f"{text[:107]}..."


if __name__ == "__main__":
    main()
