"""A SuperLink and SuperNodes on 127.0.0.1, started and stopped by a test."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from patience import within

from federated import certificates
from optuna_dp.core.polling import poll

EXAMPLE = Path(__file__).parents[2] / "examples" / "federated_vote"
HOST = "127.0.0.1"


_ports = iter(range(20_000 + os.getpid() % 10_000, 1 << 15))


def free_port() -> int:
    """A port that is free now, below those that the kernel hands out by itself.

    The program that is to have it binds it seconds later; a port from the kernel's own range may
    by then be the near end of somebody's connection.
    """
    for port in _ports:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                continue
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        return port
    raise AssertionError("no free port")


def answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


def program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


POLICY = """
max_epsilon = {epsilon}
min_clients = 3
ledger = "votes.ledger"

[search_space]
learning_rate = {{low = 1e-7, high = 3.0}}
momentum = {{choices = [0.0, 0.9]}}
"""


class Loopback:
    """Processes of one deployment; all of them are stopped in the end.

    Args:
        home: A folder of its own.
        secured: With TLS, SuperNodes with keys that are registered, limits and a list of allowed
            apps on every node. Without, as the tutorial has it.
        epsilon: The nodes' limit.
        example: The app's folder, which is copied.
        supernode: The command that starts a node.
    """

    def __init__(
        self,
        home: Path,
        *,
        secured: bool = False,
        epsilon: float = 5.0,
        example: Path = EXAMPLE,
        supernode: Sequence[str] = ("flower-supernode",),
    ) -> None:
        self.home, self.secured, self.epsilon = home, secured, epsilon
        self.supernode = supernode
        self.port = free_port()
        self.logs: dict[str, Path] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        self.env = {
            **os.environ,
            "FLWR_HOME": str(home / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "NO_PROXY": "*",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
        }
        (home / "flwr").mkdir(parents=True)
        (home / "flwr" / "config.toml").write_text(
            f'[superlink]\ndefault = "loopback"\n\n[superlink.loopback]\n'
            f'address = "{HOST}:{self.port}"\n'
            + (f'root-certificates = "{home}/ca.pem"\n' if secured else "insecure = true\n")
        )
        if secured:
            certificates.write(home, HOST)
        self.app = self.home / "app"
        shutil.copytree(example, self.app, ignore=shutil.ignore_patterns("__pycache__"))

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        self.logs[name] = self.home / f"{name}.log"
        with self.logs[name].open("wb") as log:
            process = subprocess.Popen(
                [program(command[0]), *command[1:]],
                env=self.env,
                cwd=self.home,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def start_superlink(self) -> None:
        security = ["--insecure"]
        if self.secured:
            security = [
                *("--ssl-ca-certfile", f"{self.home}/ca.pem"),
                *("--ssl-certfile", f"{self.home}/server.pem"),
                *("--ssl-keyfile", f"{self.home}/server.key"),
                "--enable-supernode-auth",
            ]
        self.start(
            "superlink",
            *("flower-superlink", *security),
            *("--host", HOST, "--port", str(self.port)),
            "--disable-runtime-dependency-installation",
        )
        poll(lambda: answers(self.port) or None, within(300, self.tail))

    def start_supernode(self, i: int, nodes: int, *, registered: bool = True) -> None:
        config = f"partition-id={i} num-partitions={nodes}"
        command, security = list(self.supernode), ["--insecure"]
        if self.secured:
            node = self.home / f"node-{i}"
            node.mkdir()
            (node / "votes.toml").write_text(POLICY.format(epsilon=self.epsilon))
            certificates.write_key(node)
            if registered:
                self.flwr("supernode", "register", str(node / "key.pub"), "loopback")
            config += f" vote-policy='{node}/votes.toml'"
            command = ["python", "-m", "optuna_dp.federated.pinned_supernode"]
            command += ["--apps", str(self.home / "apps.sha256")]
            security = ["--root-certificates", f"{self.home}/ca.pem"]
            security += ["--auth-supernode-private-key", f"{node}/key"]
        self.start(
            f"supernode-{i}",
            *(*command, *security),
            *("--superlink", f"{HOST}:{self.port}"),
            *("--host", HOST, "--port", str(free_port())),
            *("--node-config", config),
        )

    def start_all(self, nodes: int) -> None:
        self.start_superlink()
        for i in range(nodes):
            self.start_supernode(i, nodes)

    def flwr(self, *arguments: str) -> None:
        done = subprocess.run(
            [program("flwr"), *arguments],
            env=self.env,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def allow_the_app(self) -> None:
        """What the people of a node do once they have read the app."""
        for old in self.home.glob("*.fab"):
            old.unlink()
        self.flwr("build", "--app", str(self.app))
        (bundle,) = self.home.glob("*.fab")
        digest = hashlib.sha256(bundle.read_bytes()).hexdigest()
        (self.home / "apps.sha256").write_text(f"{digest}  {bundle.name}\n")

    def run(self, output: Path, **config: str) -> None:
        settings = {"output": f"'{output}'", **config}
        text = " ".join(f"{name}={value}" for name, value in settings.items())
        self.flwr("run", str(self.app), "loopback", "--run-config", text)

    def tail(self) -> str:
        return "\n".join(
            f"== {name}\n{path.read_text(errors='replace')[-3000:]}"
            for name, path in self.logs.items()
        )

    def stop(self) -> None:
        # Each was started as the leader of a group of its own, its children included.
        for process in reversed(self._processes):
            for sign in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, sign)
                except ProcessLookupError:
                    break
                try:
                    process.wait(timeout=60)
                except subprocess.TimeoutExpired:
                    continue
        assert all(process.poll() is not None for process in self._processes)


@contextmanager
def loopback(home: Path, **options: Any) -> Iterator[Loopback]:
    deployment = Loopback(home, **options)
    try:
        yield deployment
    finally:
        deployment.stop()
