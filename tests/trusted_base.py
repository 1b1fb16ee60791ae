"""The files that a guarantee depends on, found by running a small study of each procedure.

``python tests/trusted_base.py`` prints them, and ``--page`` writes them into
docs/explanation/trusted-base.md. Votes need the extra "federated".

**A file counts if one of its functions ran.** Running a module's body is not enough: Python does
that for everything that is imported. Functions that a dataclass makes are those of its file. What
has no function leaves no trace, so **a file counts as well if code that ran reads a constant of
it**, or a class without functions. Code that ran are the functions that ran, and the bodies of
modules and classes of files that count; what these bodies call counts, too.

A class with functions of which none ran was only asked about, as by ``isinstance``.
"""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import itertools
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import import_graph
import optuna
import seeds
import small_studies
from import_graph import code_lines, file_of

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "trusted-base.md"
BEGIN = "<!-- made by: python tests/trusted_base.py --page -->"
END = "<!-- end of what is made -->"

# What a study does when a file runs. The first of them decides where a file belongs: one that runs
# for a training and elsewhere, too, belongs to the number.
NUMBER, TRAINING, STATEMENT, PLAN = "number", "training", "statement", "plan"
PARTS = (NUMBER, TRAINING, STATEMENT, PLAN)
OUTSIDE = "outside"

# They run before the statement, too, and only words come of it: no number of a guarantee depends
# on them, as tests/test_sabotage.py finds.
WORDS = (
    "core/numbers_shown.py",
    "evidence/data_description.py",
    "evidence/facts.py",
    "evidence/preparation.py",
    "evidence/record_counts.py",
    "evidence/statement.py",
    "runs/scripts.py",
    "samplers/budget/statement.py",
    "samplers/selection/statement.py",
)

# What runs and may be wrong without harm to a guarantee, as tests/test_sabotage.py finds. So may
# all that runs for a plan alone: it proposes numbers, and the accounting computes their cost.
UNTRUSTED = (
    "accounting/discretisation.py",  # How fine a grid is: any is sound.
    "accounting/reading_points.py",
    "attacks/",  # Lower bounds, shown beside a guarantee.
    "core/exact_values.py",
    "priors/encoding.py",
    "priors/given_points.py",
    "priors/scores.py",
    "priors/surrogate.py",  # Any scores: densities are brought between their bounds after that.
    "releasing/callbacks.py",  # Of samplers that were told what a run costs.
    "releasing/reminders.py",
    # Any learning rate costs the same, whether it falls or not.
    "runs/rehearsal.py",
    "samplers/budget/choice.py",  # Any function of the pilots' outputs.
    "training/learning_rate.py",
    "training/made_up.py",
    "training/schedules.py",
)


class Watch:
    """Notes which functions of the package run, and during which part of a study."""

    def __init__(self) -> None:
        self.part = NUMBER
        self.ran: dict[str, dict[str, set[CodeType]]] = {}

    @contextmanager
    def during(self, part: str) -> Iterator[None]:
        """Until the block ends, the study does this. No part takes what another one has cached."""
        before, self.part = self.part, part
        forget()
        try:
            yield
        finally:
            forget()
            self.part = before

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        """For ``sys.setprofile``."""
        # By the globals: what a dataclass makes has no file, but the globals of its module.
        module = str(frame.f_globals.get("__name__"))
        if event == "call" and module.startswith("optuna_dp.") and _is_function(frame.f_code):
            file = file_of(module)
            # These load names for whoever asks, and do nothing else.
            if file is None or file.endswith("__init__.py"):
                return
            self.ran[self.part].setdefault(file, set()).add(frame.f_code)


def _is_function(code: CodeType) -> bool:
    """Whether it is the code of a function, and not the body of a module or a class."""
    return bool(code.co_flags & inspect.CO_OPTIMIZED)


def watched(procedure: str) -> Watch:
    """Runs a study of a procedure to its statement, and returns what ran.

    A first run loads all modules: what an import calls, such as a decorator, is not noted.
    """
    watch = Watch()
    for note in (None, watch.note):
        seeds.begin(f"the trusted base: {procedure}")
        watch.ran = {part: {} for part in PARTS}
        sys.setprofile(note)
        threading.setprofile(note)  # type: ignore[arg-type]  # None is allowed
        release = small_studies.STUDIES[procedure](watch.during)
        with watch.during(STATEMENT):
            small_studies.state(release)
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return watch


def forget() -> None:
    """Empties every cache of the package, so that what is needed is computed again."""
    for module in loaded():
        for thing in list(vars(module).values()):
            if hasattr(thing, "cache_clear"):
                thing.cache_clear()


def loaded() -> list[ModuleType]:
    """The modules of the package."""
    return [m for name, m in sys.modules.items() if name.startswith("optuna_dp") and m]


@functools.cache
def rooms(procedure: str) -> dict[str, str]:
    """The files that count for a procedure, and what for: a part of PARTS, or OUTSIDE.

    In a process of its own, which has loaded and cached nothing before.
    """
    command = [sys.executable, "-W", "ignore", __file__, "--rooms", procedure]
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(out.stdout))


def _rooms_here(procedure: str) -> dict[str, str]:
    """The same in this process."""
    ran = watched(procedure).ran
    found: dict[str, str] = {}
    for part in PARTS:
        waiting = list(ran[part].items())
        while waiting:
            file, codes = waiting.pop()
            if part == PLAN or file.startswith(UNTRUSTED):
                found.setdefault(file, OUTSIDE)
                continue
            if file not in found:
                found[file] = STATEMENT if file in WORDS else part
                codes = codes | _bodies(file)
            read = {target for code in codes for target in _files_read(file, code)}
            waiting += [(target, set()) for target in read - found.keys()]
    return found


def files_in(procedure: str, room: str) -> list[str]:
    """The files of one room, in order."""
    return sorted(file for file, its_room in rooms(procedure).items() if its_room == room)


@functools.cache
def _bodies(file: str) -> frozenset[CodeType]:
    """The bodies of a module and of its classes."""
    found, waiting = set(), [compile((import_graph.ROOT / file).read_text(), file, "exec")]
    while waiting:
        code = waiting.pop()
        found.add(code)
        waiting += [c for c in code.co_consts if isinstance(c, CodeType) and not _is_function(c)]
    return frozenset(found)


@functools.cache
def _files_read(file: str, code: CodeType) -> frozenset[str]:
    """The files of which some code of this file reads a constant."""
    imported = _imported_at_top(file) | _imported_by(code)
    read = set()
    for instruction, after in itertools.pairwise(dis.get_instructions(code)):
        if not (instruction.opname.startswith("LOAD_") and instruction.argval in imported):
            continue
        home, name = imported[instruction.argval]
        if f"{home}.{name}" in sys.modules:  # A module, of which it reads an attribute.
            home, name = f"{home}.{name}", str(after.argval)
        if home in sys.modules and hasattr(sys.modules[home], name):
            read.add((sys.modules[home], name))
    homes = {_home(m, n) for m, n in read if _counts(getattr(m, n), called=not _is_function(code))}
    return frozenset(home for home in homes if home is not None and home != file)


@functools.cache
def _imported_at_top(file: str) -> dict[str, tuple[str, str]]:
    """What a module imports from the package, by its own names: of which module, and as what."""
    return {
        alias.asname or alias.name: (str(node.module), alias.name)
        for node in ast.parse((import_graph.ROOT / file).read_text()).body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("optuna_dp")
        for alias in node.names
    }


def _imported_by(code: CodeType) -> dict[str, tuple[str, str]]:
    """The same for the imports of a function."""
    found, module = {}, ""
    instructions = list(dis.get_instructions(code)) if _is_function(code) else []
    for instruction, after in itertools.pairwise(instructions):
        if instruction.opname == "IMPORT_NAME":
            module = str(instruction.argval)
        elif instruction.opname == "IMPORT_FROM" and module.startswith("optuna_dp"):
            found[str(after.argval)] = (module, str(instruction.argval))
    return found


def _counts(value: Any, *, called: bool) -> bool:
    """Whether reading a value may matter although no function of its file ran."""
    if isinstance(value, ModuleType):
        return False
    if isinstance(value, FunctionType) or hasattr(value, "cache_clear"):
        return called
    if isinstance(value, type):
        functions = [f for f in vars(value).values() if isinstance(f, FunctionType)]
        return not any(f.__module__ == value.__module__ for f in functions)
    return True


def _home(module: ModuleType, name: str) -> str | None:
    """The file that defines what a module has by a name."""
    value = getattr(module, name)
    home = value.__module__ if isinstance(value, type | FunctionType) else module.__name__
    return file_of(home)


def lines(files: Iterable[str]) -> int:
    """Code lines: not blank, not only a comment, not a docstring."""
    return sum(code_lines(file) for file in files)


# How the page marks the rooms.
_LETTERS = {NUMBER: "N", TRAINING: "T", STATEMENT: "S", OUTSIDE: "o"}


def made() -> str:
    """What the page shows of the studies."""
    names = list(small_studies.STUDIES)
    text = [
        "| | what was run | number | training | statement | in all |",
        "|---|---|---|---|---|---|",
    ]
    for name, study in small_studies.STUDIES.items():
        parts = [files_in(name, room) for room in (NUMBER, TRAINING, STATEMENT)]
        sizes = " | ".join(_size(files) for files in (*parts, [*itertools.chain(*parts)]))
        text.append(f"| {name} | {inspect.getdoc(study)} | {sizes} |")
    text += ["", f"| file | lines | {' | '.join(names)} |", f"|---|---{'|---' * len(names)}|"]
    for file in sorted({file for name in names for file in rooms(name)}):
        letters = [_LETTERS.get(rooms(name).get(file, ""), "") for name in names]
        text.append(f"| `{file}` | {code_lines(file)} | {' | '.join(letters)} |")
    return "\n".join(text)


def _size(files: list[str]) -> str:
    return f"{len(files)} files, {lines(files):,} lines" if files else "none"


def shown() -> dict[str, dict[str, str]]:
    """What the page shows: for each procedure the letters of its files."""
    head, *rows = re.findall(r"^\| (?:file|`\S+\.py`) \|.*$", PAGE.read_text(), re.MULTILINE)
    names = _cells(head)[2:]
    found: dict[str, dict[str, str]] = {name: {} for name in names}
    for row in rows:
        file, _, *letters = _cells(row)
        for name, letter in zip(names, letters, strict=True):
            if letter:
                found[name][file.strip("`")] = letter
    return found


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.split("|")[1:-1]]


def letters_of(procedure: str) -> dict[str, str]:
    """What the page should show of a procedure."""
    return {file: _LETTERS[room] for file, room in rooms(procedure).items()}


def write_page() -> None:
    """Writes what is made between the two marks of the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{made()}\n\n{END}{after}")


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    seeds.pytest_configure()  # What the studies draw is the same each time.
    if sys.argv[1:2] == ["--rooms"]:
        print(json.dumps(_rooms_here(sys.argv[2])))
    elif sys.argv[1:] == ["--page"]:
        write_page()
    else:
        print(made())


if __name__ == "__main__":
    main()
