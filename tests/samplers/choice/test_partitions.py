from __future__ import annotations

import hashlib
import random
import secrets

import numpy as np
import pytest
from refusals import refuses
from scipy import stats

from optuna_dp.mechanisms import partition

KEY = b"a test's key, which is no secret"


def parts(records, places, k):
    """The k partitions as multisets of records."""
    return [sorted(r for r, p in zip(records, places, strict=True) if p == i) for i in range(k)]


def changed(records, other, place, k):
    """How many partitions differ between two data sets under a placement rule."""
    before, after = (parts(data, place(data, k), k) for data in (records, other))
    return sum(a != b for a, b in zip(before, after, strict=True))


def by_identifier(records, k):
    return partition([name for name, _ in records], k, key=KEY)


def by_position(records, k):
    return [i % k for i in range(len(records))]


def by_shares(records, k):
    return [i * k // len(records) for i in range(len(records))]


def by_content(records, k):
    return [
        int.from_bytes(hashlib.sha256(repr(content).encode()).digest(), "big") % k
        for _, content in records
    ]


def people(n, seed=0):
    content = np.random.default_rng(seed).integers(0, 10**9, n)
    return [(f"person {i}", int(c)) for i, c in enumerate(content)]


@pytest.mark.promise("scored-records")
@pytest.mark.parametrize("position", [0, 7, 199])
def test_adding_or_removing_one_record_changes_one_partition(position):
    records = people(200)
    without = records[:position] + records[position + 1 :]
    assert changed(records, without, by_identifier, 10) == 1
    assert changed(without, records, by_identifier, 10) == 1


@pytest.mark.parametrize("seed", range(20))
def test_replacing_the_content_of_a_record_changes_one_partition(seed):
    records = people(200)
    replaced = [*records[:7], (records[7][0], -1 - seed), *records[8:]]
    assert changed(records, replaced, by_identifier, 10) == 1


def test_order_does_not_matter():
    records = people(200)
    shuffled = [records[i] for i in np.random.default_rng(1).permutation(200)]
    assert changed(records, shuffled, by_identifier, 10) == 0


@pytest.mark.parametrize("place", [by_position, by_shares])
def test_splitting_by_position_fails_the_same_test(place):
    records = people(200)
    assert changed(records, records[1:], place, 10) > 1


def test_a_hash_of_the_content_fails_under_replacement():
    records = people(200)
    worst = max(
        changed(records, [*records[:7], (records[7][0], -1 - s), *records[8:]], by_content, 10)
        for s in range(20)
    )
    assert worst == 2


def test_draws_for_a_number_of_records_do_not_depend_on_the_number(monkeypatch):
    # The same entropy stream: one more record takes one more draw and moves nobody.
    monkeypatch.setattr(secrets, "randbelow", random.Random(3).randrange)
    longer = partition(1001, 7)
    monkeypatch.setattr(secrets, "randbelow", random.Random(3).randrange)
    assert (partition(1000, 7) == longer[:1000]).all()


def test_draws_are_fresh_each_time():
    assert (partition(200, 7) != partition(200, 7)).any()
    names = [f"person {i}" for i in range(200)]
    assert (partition(names, 7) != partition(names, 7)).any()


@pytest.mark.parametrize("records", [70_000, [f"person {i}" for i in range(70_000)]])
def test_partitions_are_uniform_and_neighbours_independent(records):
    places = partition(records, 7)
    assert places.dtype == np.int64
    assert stats.chisquare(np.bincount(places, minlength=7)).pvalue > 1e-9
    pairs = places[:-1:2] * 7 + places[1::2]
    assert stats.chisquare(np.bincount(pairs, minlength=49)).pvalue > 1e-9


def test_rows_of_one_person_share_a_partition():
    places = partition(["ann", "bob", "ann", "cem", "ann"], 5, key=KEY)
    assert places[0] == places[2] == places[4]


def test_identifiers_of_different_types_are_different_records():
    numbers = range(1, 301)
    as_int = partition(numbers, 200, key=KEY).tolist()
    as_str = partition([str(i) for i in numbers], 200, key=KEY).tolist()
    as_bytes = partition([str(i).encode() for i in numbers], 200, key=KEY).tolist()
    assert as_int != as_str
    assert as_str != as_bytes
    assert as_int != as_bytes
    assert partition(np.arange(1, 301), 200, key=KEY).tolist() == as_int


@pytest.mark.promise("scored-records")
@pytest.mark.parametrize("row_numbers", [range(40), np.arange(40), list(range(40))])
def test_numbers_of_rows_are_no_identifiers(row_numbers):
    """Without the first record all others would be placed anew."""
    with refuses("record_ids_or_n"):
        partition(row_numbers, 5, key=KEY)


@pytest.mark.parametrize(
    ("records", "k", "key", "argument"),
    [
        (100, 1, None, "k"),
        (100, 2.0, None, "k"),
        (100, True, None, "k"),
        (3, 4, None, "record_ids_or_n"),
        (["a", "b"], 3, KEY, "record_ids_or_n"),
        ([], 2, KEY, "record_ids_or_n"),
        (-5, 2, None, "record_ids_or_n"),
        (True, 2, None, "record_ids_or_n"),
        (2.5, 2, None, "record_ids_or_n"),
        ("abcdef", 2, KEY, "record_ids_or_n"),
        (["a", 1.5, "b"], 2, KEY, "record_ids_or_n[1]"),
        (["a", None, "b"], 2, KEY, "record_ids_or_n[1]"),
        ([True, False], 2, KEY, "record_ids_or_n[0]"),
        (["a", "b"], 2, b"short", "key"),
        (["a", "b"], 2, "not bytes, but long enough", "key"),
        (100, 2, KEY, "key"),
    ],
)
def test_bad_input(records, k, key, argument):
    with refuses(argument) as error:
        partition(records, k, key=key)
    assert "short" not in str(error.value), "the key must not be printed"


@pytest.mark.parametrize("records", [np.full((9, 64), 0.125), [[0.125] * 64] * 9])
def test_records_in_place_of_identifiers_are_not_printed(records):
    with refuses("record_ids_or_n[0]") as error:
        partition(records, 5)
    assert "0.125" not in str(error.value)
