"""A PostgreSQL of your own in ./postgres-data, without installing a server.

    python postgres.py start    # prints its URL
    python postgres.py stop     # stops it and deletes its data

Needs ``pip install ".[test]"`` (package pgserver; Python below 3.13). For work, use the
PostgreSQL that somebody looks after.
"""

import shutil
import sys
import warnings
from pathlib import Path

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # A remark on the environment's runtime directory.
    import pgserver

FOLDER = Path("postgres-data").resolve()


def main() -> None:
    FOLDER.mkdir(mode=0o755, exist_ok=True)
    server = pgserver.get_server(FOLDER / "data", cleanup_mode=None)
    if sys.argv[1:] == ["start"]:
        server.psql("CREATE DATABASE tuning;")
        print(server.get_uri("tuning").replace("postgresql://", "postgresql+psycopg://"))
    elif sys.argv[1:] == ["stop"]:
        pgserver.pg_ctl(
            ["-w", "-m", "fast", "stop"], pgdata=FOLDER / "data", user=server.system_user
        )
        shutil.rmtree(FOLDER)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
