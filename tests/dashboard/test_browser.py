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
from support import release as released_by

import optuna_dp as odp

from .kinds import KINDS, PLAN, RUNS

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


Storages = tuple[str, dict[str, str]]


@pytest.fixture(scope="module")
def storages(tmp_path_factory: pytest.TempPathFactory) -> Storages:
    """One storage with a private study of each kind, and one for what each has released."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    folder = tmp_path_factory.mktemp("storages")
    curator = f"sqlite:///{folder / 'curator'}.db"
    public = {kind: f"sqlite:///{folder / kind}.db" for kind in KINDS}
    for kind, make in KINDS.items():
        odp.publish(released_by(make(storage=curator, study_name=kind)), public[kind], kind)
    return curator, public


NUMBER = {kind: i for i, kind in enumerate(KINDS, start=1)}
# What the first page of a private study shows, and nothing that is published does.
SECRET = {
    "dp_hypo": [f"runs so far: {RUNS}", "For the curator only"],
    "budget": [f"runs so far: {PLAN.runs}"],
    "propose_test": ["iterations so far", "For the curator only"],
    "noisy_max": [],
}
# What both pages show.
SHOWN = {
    "dp_hypo": ["one run by itself", "What publishing runs costs"],
    "budget": ["one pilot of rung 1", "What publishing runs costs"],
    "propose_test": ["one iteration by itself", "What publishing iterations costs"],
    "noisy_max": [],
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_curators_page(
    kind: str, storages: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    with served(storages[0], NUMBER[kind]) as url:
        front = page(url, tmp_path / "profile")
    for text in ("What is guaranteed", *SHOWN[kind], *SECRET[kind]):
        assert text in front, text


@pytest.mark.parametrize("kind", KINDS)
def test_the_published_page(
    kind: str, storages: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    with served(storages[1][kind], 1) as url:
        front = page(url, tmp_path / "profile")
    for text in ("What is guaranteed", *SHOWN[kind]):
        assert text in front, text
    for text in ("curator only", "so far", *SECRET[kind]):
        assert text not in front, text


def test_the_notes(storages: Storages, tmp_path: Path) -> None:
    number = NUMBER["dp_hypo"]
    with served(storages[0], number) as url:
        curators = page(f"{url}/note", tmp_path / "profile")
    with served(storages[1]["dp_hypo"], 1) as url:
        public = page(f"{url}/note", tmp_path / "profile")
    assert "Do not share this page" in curators
    assert f"{RUNS} of {RUNS} (secret)" in curators
    assert "yes: odp.release(study)" in curators
    assert "Safe to show" in public
    assert "Privacy statement" in public
    assert "curator only" not in public
    assert "(secret)" not in public


def test_a_study_with_a_budget_may_be_shown_and_says_so(
    storages: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    """Before its release and after it, with every pilot that is paid for."""
    pages = []
    public = storages[1]["budget"]
    for storage, number in ((storages[0], NUMBER["budget"]), (public, 1)):
        with served(storage, number) as url:
            pages += [page(url, tmp_path / "front"), page(f"{url}/note", tmp_path / "note")]
    assert "may be shown" in pages[1]
    assert "Privacy statement" in pages[3]
    for text in pages:
        assert "Do not share" not in text
        assert "curator only" not in text
    assert len(optuna.load_study(study_name="budget", storage=public).trials) == PLAN.runs
