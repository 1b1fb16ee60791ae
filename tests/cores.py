"""Gives numpy one thread: pytest's two workers share the cores already. Import it before numpy."""

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
