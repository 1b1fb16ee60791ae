"""Makes the first tutorial's notebook from its page, so that there is one text.

``python docs/make_notebook.py`` executes every cell in a kernel of its own and stores the notebook
with what it showed; ``--check`` stores nothing. Needs the packages nbclient and ipykernel.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE / "tutorials" / "first-study.md"
NOTEBOOK = PAGE.with_suffix(".ipynb")
# What a notebook shows by itself, after the cell that makes it.
_SHOW = {"plan = odp.": "plan", "release = odp.release(study)": "release"}
# A notebook is saved with what it showed, and Optuna's log shows every run of a study.
_QUIET = """\
A notebook is saved with everything it has shown, and Optuna logs every run. For the second study
on this page that is a leak (only the release may be shown), so the log is switched off first."""
_BLOCK = re.compile(r"^```(\{?\w+\}?)\n(.*?)^```$\n?", re.MULTILINE | re.DOTALL)
_OPTIONS = re.compile(r"\A(?::\w+:.*\n)+\n?")  # of the directive, no code
_FIGURE = re.compile(r"^```\{figure\}.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]+)\]\((?!http)[^)]+\.md[^)]*\)")


def cells() -> list[dict[str, Any]]:
    """Returns the cells: the page's text and its code, without what the code printed there."""
    text, found, end = PAGE.read_text(), [], 0
    for block in _BLOCK.finditer(text):
        found.append(_markdown(text[end : block.start()]))
        end = block.end()
        if block[1] == "{testcode}":
            shown = [name for begin, name in _SHOW.items() if begin in block[2]]
            source = _OPTIONS.sub("", block[2]).rstrip()
            found += [_code(line) for line in (source, *shown)]
        elif block[1] in ("sh", "python"):  # A whole script is no cell: it stores its study.
            found.append(_markdown(block[0]))
    found.append(_markdown(text[end:]))
    quiet = "import optuna\n\noptuna.logging.set_verbosity(optuna.logging.WARNING)"
    found[1:1] = [_markdown(_QUIET), _code(quiet)]
    # The names of cells are fixed, so that making it again changes nothing.
    kept = [cell for cell in found if cell["source"]]
    return [{"id": f"cell-{number}", **cell} for number, cell in enumerate(kept)]


def notebook() -> dict[str, Any]:
    """Returns the notebook, before it is run."""
    return {
        "cells": cells(),
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _markdown(text: str) -> dict[str, Any]:
    text = re.sub(r"^<!-- .*? -->\n", "", text, flags=re.MULTILINE).strip()
    text = text.replace(", or open this page as a {download}`notebook <first-study.ipynb>`", "")
    text = _FIGURE.sub("", text).strip()  # a notebook draws its own
    # The other pages are not beside it wherever it is opened.
    text = _LINK.sub(r"*\1*", text)
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def _code(text: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": text,
    }


def main() -> None:
    """Executes the notebook, and stores it."""
    import nbclient
    import nbformat

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="execute it, and store nothing")
    executed = nbformat.from_dict(notebook())
    nbclient.NotebookClient(executed, timeout=600, kernel_name="python3").execute()
    made = json.loads(nbformat.writes(executed))
    for cell in made["cells"]:
        cell["metadata"].pop("execution", None)  # when each began and ended
        cell["source"] = "".join(cell["source"])
        if "outputs" in cell:  # warnings name folders of this machine
            cell["outputs"] = [o for o in cell["outputs"] if o.get("name") != "stderr"]
    if not parser.parse_args().check:
        NOTEBOOK.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
