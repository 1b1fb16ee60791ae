"""Optuna's gRPC proxy in front of a database, for workers that may not reach the database itself.

python proxy.py STORAGE [PORT]
"""

import sys
import warnings

import optuna
from tune import open_storage


def main() -> None:
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 13000
    optuna.storages.run_grpc_proxy_server(open_storage(sys.argv[1]), host="localhost", port=port)


if __name__ == "__main__":
    main()
