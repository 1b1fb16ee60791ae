"""The dashboard in a real browser: what the pages show."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, make_server

import optuna
import pytest

import optuna_dp as odp

from .kinds import KINDS, PILOTS, RUNS, SELECTION_RUNS

optuna_dashboard = pytest.importorskip("optuna_dashboard")
pytest.importorskip("plotly")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--virtual-time-budget=15000",
    "--window-size=1400,2400",
]

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
    # The dashboard's server thread may still hold a connection when the test ends.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served(storage: str, number: int) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, optuna_dashboard.wsgi(storage), handler_class=_Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/dashboard/studies/{number}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def page(url: str, profile: Path) -> str:
    """The text of a page after its scripts have run; a screenshot beside it for people."""
    assert CHROMIUM is not None
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}"]
    done = subprocess.run([*command, "--dump-dom", url], capture_output=True, timeout=300)
    shots = os.environ.get("OPTUNA_DP_SCREENSHOTS")
    if shots:
        name = re.sub(r"\W+", "-", profile.parent.name + url.split("studies")[1])
        Path(shots).mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [*command, f"--screenshot={shots}/{name}.png", url], capture_output=True, timeout=300
        )
    source = done.stdout.decode(errors="replace")
    source = re.sub(r"(?s)<(script|style)\b.*?</\1>", " ", source)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", source)).split())


@pytest.fixture(scope="module")
def storages(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """One storage with a private study of each kind, one with what each has released."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    folder = tmp_path_factory.mktemp("storages")
    curator, public = (f"sqlite:///{folder / name}.db" for name in ("curator", "public"))
    for kind, make in KINDS.items():
        more = {"release_pilots": True} if kind == "pilots" else {}
        odp.publish(odp.release(make(storage=curator, study_name=kind, **more)), public, kind)
    return curator, public


NUMBER = {kind: i for i, kind in enumerate(KINDS, start=1)}
# What the first page of a private study shows, and nothing that is published does.
SECRET = {
    "dp_hypo": [f"runs so far: {RUNS}", "Scores of the runs", "Where the next run is drawn"],
    "pilots": [
        f"runs so far: {PILOTS + SELECTION_RUNS}",
        "Scores of the runs",
        "the prior that the pilots taught",
        "uniform share 0.1",
    ],
    "propose_test": ["The doubling loop", "best mean utility among those tested", "iterations so"],
    "noisy_max": ["means that are not private", "candidates so far", "chosen"],
}
# What both pages show.
SHOWN = {
    "dp_hypo": ["one run by itself", "Publishing every run or releasing one"],
    "pilots": [f"the {PILOTS} pilots by themselves", f"the {PILOTS} pilots alone"],
    "propose_test": ["one iteration by itself", "What the iterations cost"],
    "noisy_max": ["Publishing every utility or releasing one choice"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_curators_page(kind: str, storages: tuple[str, str], tmp_path: Path) -> None:
    with served(storages[0], NUMBER[kind]) as url:
        front = page(url, tmp_path / "profile")
    for text in ("What is guaranteed", "For the curator only", *SHOWN[kind], *SECRET[kind]):
        assert text in front, text


@pytest.mark.parametrize("kind", KINDS)
def test_the_published_page(kind: str, storages: tuple[str, str], tmp_path: Path) -> None:
    with served(storages[1], NUMBER[kind]) as url:
        front = page(url, tmp_path / "profile")
    for text in ("What is guaranteed", *SHOWN[kind]):
        assert text in front, text
    for text in ("curator only", "so far", *SECRET[kind]):
        assert text not in front, text
    assert ("The pilots that were released" in front) == (kind == "pilots")
    assert ("Best Trial (number=0)" in front) == (kind in ("dp_hypo", "pilots"))


def test_the_notes(storages: tuple[str, str], tmp_path: Path) -> None:
    number = NUMBER["pilots"]
    with served(storages[0], number) as url:
        curators = page(f"{url}/note", tmp_path / "profile")
    with served(storages[1], number) as url:
        public = page(f"{url}/note", tmp_path / "profile")
    assert "Do not share this page" in curators
    assert f"{SELECTION_RUNS} of {SELECTION_RUNS} (secret)" in curators
    assert "yes: odp.release(study)" in curators
    assert "Safe to show" in public
    assert "Privacy statement" in public
    assert "curator only" not in public
    assert "(secret)" not in public


def test_a_study_with_a_budget_may_be_shown_and_says_so(tmp_path: Path) -> None:
    """Before its release and after it, with every pilot that is paid for."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage, public = f"sqlite:///{tmp_path / 'open.db'}", f"sqlite:///{tmp_path / 'public.db'}"
    plan = odp.plan_budget(epsilon=3.0, records=1355, batch_size=64, epochs=10, pilots=(4, 2))
    study = optuna.create_study(
        storage=storage,
        study_name="open",
        direction="maximize",
        sampler=odp.BudgetSampler(plan),
    )
    study.optimize(
        lambda trial: trial.suggest_float("rate", 0, 1), callbacks=[odp.PrivacyCallback()]
    )
    odp.dashboard.annotate(study)
    odp.publish(odp.release(study), public, "open")
    with served(storage, 1) as url:
        front, note = page(url, tmp_path / "one"), page(f"{url}/note", tmp_path / "two")
    with served(public, 1) as url:
        released, statement = page(url, tmp_path / "three"), page(f"{url}/note", tmp_path / "four")
    assert "may be shown" in note
    assert "Do not share" not in note
    assert "curator only" not in front + note + released + statement
    assert "What is guaranteed" in front
    assert "Privacy statement" in statement
    for shown in (front, released):
        assert "pilots" in shown
    assert len(optuna.load_study(study_name="open", storage=public).trials) == 7
