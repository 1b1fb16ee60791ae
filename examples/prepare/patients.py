"""Writes patients.csv, a made-up table as hospitals have one: mixed types, gaps, a rare class.

    pip install pandas .
    python patients.py
    python from_a_table.py

With a table of your own, describe its columns in from_a_table.py in place of these.
"""

import numpy as np
import pandas

RECORDS = 4000
draws = np.random.default_rng()
age = draws.normal(55, 18, RECORDS).clip(0, 104).round()
income = np.exp(draws.normal(10.2, 0.8, RECORDS)).round(-2)  # a few are very large
days = draws.integers(0, 4000, RECORDS)
odds = np.exp((age - 55) / 10 - 5)
frame = pandas.DataFrame(
    {
        "patient": draws.integers(0, 3500, RECORDS),  # some were admitted twice, or more often
        "age": age,
        "income": np.where(draws.random(RECORDS) < 0.2, np.nan, income),  # a fifth is missing
        "sex": draws.choice(["F", "M", "f", "unknown"], RECORDS, p=[0.5, 0.45, 0.03, 0.02]),
        "ward": draws.choice(["surgery", "medicine", "burns"], RECORDS, p=[0.5, 0.49, 0.01]),
        "admitted": np.datetime64("2015-01-01") + days.astype("timedelta64[D]"),
        "died": np.where(draws.random(RECORDS) < odds / (1 + odds), "yes", "no"),
    }
)
frame.to_csv("patients.csv", index=False)
