"""A storage served from this process, for as long as a call lasts.

Optuna's gRPC storage proxy, with two differences: it is given a free port, and it answers only
those who know a secret that the workers were told. Optuna's own answers everybody, and on a
cluster with other users everybody can reach the port. The secret keeps out who only can connect;
who can read the network's traffic can read the study (nothing is encrypted).
"""

from __future__ import annotations

import hmac
import secrets
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.storages import BaseStorage, GrpcStorageProxy
from optuna.trial import FrozenTrial

from optuna_dp.errors import MissingExtraError
from optuna_dp.optuna_internals import InterceptedProxy, address_of, serve_storage

_HEADER = "x-optuna-dp-secret"


@contextmanager
def served(storage: BaseStorage, host: str, *, one_by_one: bool) -> Iterator[GrpcStorageProxy]:
    """Serves a storage on an address of this machine; yields what workers open it with.

    Answering requests one by one spares SQLite its locks.

    Raises:
        MissingExtraError: If grpcio is not installed.
    """
    grpc = _grpc()
    secret = secrets.token_hex(32)
    threads = ThreadPoolExecutor(1 if one_by_one else 16, thread_name_prefix="optuna-dp-storage")
    server = grpc.server(threads, interceptors=[_doorkeeper(grpc, secret)])
    serve_storage(storage, server)
    port = server.add_insecure_port(f"{host}:0")
    server.start()
    proxy = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            proxy = SecretProxy(host, port, secret)
        yield proxy
    finally:
        if proxy is not None:
            proxy.close()
        server.stop(grace=None).wait()
        threads.shutdown()


class SecretProxy(InterceptedProxy):
    """Optuna's client, which tells the server the secret with every request."""

    def __init__(self, host: str, port: int, secret: str) -> None:
        self.secret = secret
        # What never changes any more: every run asks for trial 0, which holds the study's plan.
        self._ids: dict[tuple[int, int], int] = {}
        self._ended: dict[int, FrozenTrial] = {}
        super().__init__(host=host, port=port)

    def __repr__(self) -> str:
        host, port = address_of(self)
        return f"SecretProxy({host!r}, {port})"

    def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> int:
        key = study_id, trial_number
        if key not in self._ids:
            self._ids[key] = super().get_trial_id_from_study_id_trial_number(*key)
        return self._ids[key]

    def get_trial(self, trial_id: int) -> FrozenTrial:
        if trial_id in self._ended:
            return self._ended[trial_id]
        trial = super().get_trial(trial_id)
        if trial.number == 0 and trial.state.is_finished():
            self._ended[trial_id] = trial
        return trial

    def intercepted(self, channel: Any) -> Any:
        grpc = _grpc()
        return grpc.intercept_channel(channel, _teller(grpc, self.secret))


def _teller(grpc: Any, secret: str) -> Any:
    class Teller(grpc.UnaryUnaryClientInterceptor):
        def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            metadata = [*(details.metadata or ()), (_HEADER, secret)]
            return continuation(details._replace(metadata=metadata), request)

    return Teller()


def _doorkeeper(grpc: Any, secret: str) -> Any:
    def refuse(_: Any, context: Any) -> None:
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "This storage is not for you.")

    refusal = grpc.unary_unary_rpc_method_handler(refuse)

    class Doorkeeper(grpc.ServerInterceptor):
        def intercept_service(self, continuation: Any, details: Any) -> Any:
            token = dict(details.invocation_metadata or ()).get(_HEADER, "")
            is_authentic = hmac.compare_digest(str(token).encode(), secret.encode())
            return continuation(details) if is_authentic else refusal

    return Doorkeeper()


def _grpc() -> Any:
    try:
        import grpc  # an extra
    except ModuleNotFoundError as error:
        raise MissingExtraError("grpcio", "grpc") from error
    return grpc
