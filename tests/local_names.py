"""Counts local names of the package that are pronouns or participles, and not nouns.

    python tests/local_names.py            # by folder, and the files with most of them
    python tests/local_names.py --names    # each name, with how often a function has it

``docs/contributing/names.md`` says why. Nothing is asserted: now and then ``first`` is the right
name. A name counts once for each function that gives it a value; parameters count as well.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1] / "optuna_dp"
PRONOUNS = {
    *("all", "another", "any", "both", "each", "either", "every", "few", "first", "last", "least"),
    *("less", "many", "mine", "more", "most", "neither", "none", "one", "ones", "other", "others"),
    *("own", "rest", "same", "second", "several", "some", "that", "theirs", "these", "this"),
    *("those", "three", "two", "what", "which", "who", "whole"),
}
PARTICIPLES = {
    *("asked", "begun", "bought", "chosen", "computed", "done", "drawn", "expected", "finished"),
    *("found", "gained", "given", "gone", "kept", "known", "learned", "left", "looked", "lost"),
    *("made", "moved", "named", "needed", "paid", "put", "read", "said", "seen", "sent", "shown"),
    *("sorted_", "started", "stored", "taken", "told", "tried", "turned", "used", "wanted", "won"),
    *("written",),
}


def local_names(tree: ast.AST) -> list[str]:
    """The names that functions give values to, once for each function."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            arguments = node.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            own = {argument.arg for argument in every} - {"self", "cls"}
            body = node.body if isinstance(node.body, list) else [node.body]
            for part in body:
                own |= {
                    inner.id
                    for inner in ast.walk(part)
                    if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
                }
            names += sorted(own)
    return names


def is_no_noun(name: str) -> bool:
    return name.strip("_") in PRONOUNS | PARTICIPLES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", action="store_true")
    options = parser.parse_args()
    by_file = {
        path.relative_to(ROOT): local_names(ast.parse(path.read_text(encoding="utf-8")))
        for path in sorted(ROOT.rglob("*.py"))
    }
    if options.names:
        counts = Counter(name for names in by_file.values() for name in names if is_no_noun(name))
        for name, count in counts.most_common():
            print(f"{count:5} {name}")
        return
    folders: dict[str, list[str]] = {}
    for path, names in by_file.items():
        folders.setdefault(path.parts[0] if len(path.parts) > 1 else "(top)", []).extend(names)
    folders["in all"] = [name for names in by_file.values() for name in names]
    for folder, names in folders.items():
        count = sum(map(is_no_noun, names))
        print(
            f"{folder:22} {count:4} of {len(names):5}, {100 * count / max(len(names), 1):4.1f} %"
        )
    print("\nMost of them:")
    worst = sorted(by_file.items(), key=lambda item: -sum(map(is_no_noun, item[1])))
    for path, names in worst[:12]:
        print(f"{sum(map(is_no_noun, names)):4} {path}")


if __name__ == "__main__":
    main()
