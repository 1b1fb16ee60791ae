"""A cluster of three workers on this machine: prints its address, and ends with its input.

python -m engines.cluster ENGINE
"""

from __future__ import annotations

import sys

from .driver import running

WORKERS = 3


def main() -> None:
    with running(sys.argv[1], WORKERS) as address:
        print(address, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
