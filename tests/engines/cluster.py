"""A cluster of three workers on this machine; it ends with its input.

It prints its address, and what it has added to its environment for whoever connects.

python -m engines.cluster ENGINE
"""

from __future__ import annotations

import json
import os
import sys

from .driver import running

WORKERS = 3


def main() -> None:
    before = dict(os.environ)
    with running(sys.argv[1], WORKERS) as address:
        # Ray authenticates its clients, in a way that it says there.
        added = {k: v for k, v in os.environ.items() if k.startswith("RAY_") and k not in before}
        print(json.dumps([address, added]), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
