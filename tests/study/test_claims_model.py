"""Every interleaving of workers that claim one trial, played with the function that they follow.

A worker writes its own register, and reads those of the others: all at once, as databases do, or
one after the other. It may also stop for ever at any moment; that only leaves out steps, so what
holds in every state that can be reached holds of dying workers too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from optuna_dp.study.claims import HERE, OUT, STANDS, WON, next_state

Protocol = Callable[[str, str, Mapping[str, str]], str]
# Of one worker: what it read so far (None: not yet looked at), or what it is about to write.
Reading = tuple[str | None, ...]
Local = Reading | str
State = tuple[tuple[str, ...], tuple[Local, ...]]  # The registers; "" is not written.


def steps(state: State, protocol: Protocol, at_once: bool) -> Iterator[State]:
    """The states after one step of one worker; a worker that has won or left takes none."""
    registers, workers = state
    for i, local in enumerate(workers):
        if registers[i] in (WON, OUT):
            continue
        if isinstance(local, str):
            written = (*registers[:i], local, *registers[i + 1 :])
            yield written, (*workers[:i], (None,) * len(workers), *workers[i + 1 :])
            continue
        unread = [j for j, seen in enumerate(local) if seen is None]
        for those in [unread] if at_once else [[j] for j in unread]:
            read = tuple(registers[j] if j in those else seen for j, seen in enumerate(local))
            yield (
                registers,
                (*workers[:i], decided(i, registers, read, protocol), *workers[i + 1 :]),
            )


def decided(i: int, registers: tuple[str, ...], read: Reading, protocol: Protocol) -> Local:
    if None in read:
        return read
    others = {str(j): seen for j, seen in enumerate(read) if j != i and seen}
    found = protocol(str(i), registers[i], others)
    return (None,) * len(read) if found == registers[i] else found


def winners(workers: int, protocol: Protocol, at_once: bool) -> set[int]:
    """How many winners there may be: in any state, and at least in those where all have ended."""
    start: State = (("",) * workers, (HERE,) * workers)
    seen, todo, found = {start}, [start], set()
    while todo:
        state = todo.pop()
        count = state[0].count(WON)
        if count > 1 or set(state[0]) <= {WON, OUT}:
            found.add(count)
        for after in steps(state, protocol, at_once):
            if after not in seen:
                seen.add(after)
                todo.append(after)
    assert len(seen) > 10
    return found


@pytest.mark.promise("two workers get one trial")
@pytest.mark.parametrize(
    ("workers", "at_once"), [(2, True), (3, True), (4, True), (2, False), (3, False)]
)
def test_exactly_one_worker_wins_whatever_the_interleaving(workers: int, at_once: bool) -> None:
    assert winners(workers, next_state, at_once) == {1}


def without_waiting(token: str, mine: str, others: Mapping[str, str]) -> str:
    """Sabotaged: does not wait for those who have not decided."""
    return next_state(token, mine, {t: s for t, s in others.items() if s != HERE})


def without_leaving(token: str, mine: str, others: Mapping[str, str]) -> str:
    """Sabotaged: stands although another stood before."""
    return STANDS if mine == HERE else next_state(token, mine, others)


@pytest.mark.parametrize("sabotaged", [without_waiting, without_leaving])
@pytest.mark.parametrize("workers", [2, 3])
def test_a_protocol_that_leaves_out_a_step_has_two_winners(sabotaged, workers: int) -> None:
    assert 2 in winners(workers, sabotaged, at_once=True)


def test_a_worker_that_stops_for_ever_leaves_no_second_winner() -> None:
    """It may be none then: the others wait until the trial is marked as failed."""

    def stops(token: str, mine: str, others: Mapping[str, str]) -> str:
        return mine if token == "0" else next_state(token, mine, others)

    assert max(winners(3, stops, at_once=True), default=0) <= 1
