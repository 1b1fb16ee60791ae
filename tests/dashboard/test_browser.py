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
from support import RUN, objective, study_of

import optuna_dp as odp

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
RUNS = 7


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served(storage: str) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, optuna_dashboard.wsgi(storage), handler_class=_Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/dashboard/studies/1"
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
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    folder = tmp_path_factory.mktemp("storages")
    curator, public = (f"sqlite:///{folder / name}.db" for name in ("curator", "public"))
    sampler = odp.DPHyPOSampler(trials=odp.Geometric(mean=5))
    sampler._draw_slots = lambda bits: RUNS  # type: ignore[method-assign]
    study = study_of(sampler, storage=curator, study_name="tuning")
    study.optimize(objective, callbacks=[odp.PrivacyCallback(RUN)])
    odp.release(study).publish(public, "result")
    return curator, public


def test_the_curators_page(storages: tuple[str, str], tmp_path: Path) -> None:
    with served(storages[0]) as url:
        front = page(url, tmp_path / "profile")
        note = page(f"{url}/note", tmp_path / "profile")
    for title in (
        "What is guaranteed",
        "strongest known attack",
        "Publishing every run or releasing one",
        "Where the next run is drawn",
        "C = 2",
        "Scores of the runs",
        "For the curator only",
    ):
        assert title in front, title
    assert "Do not share this page" in note
    assert f"{RUNS} of {RUNS} (secret)" in note
    assert "yes: odp.release(study)" in note


def test_the_published_page(storages: tuple[str, str], tmp_path: Path) -> None:
    with served(storages[1]) as url:
        front = page(url, tmp_path / "profile")
        note = page(f"{url}/note", tmp_path / "profile")
    assert "What is guaranteed" in front
    assert "Publishing every run or releasing one" in front
    assert "Best Trial (number=0)" in front
    assert "Safe to show" in note
    assert "Privacy statement" in note
    for private in ("curator only", "runs so far", "Scores of the runs", f"{RUNS} of {RUNS}"):
        assert private not in front + note
