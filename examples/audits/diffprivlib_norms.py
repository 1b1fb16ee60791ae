"""What diffprivlib's logistic regression costs in one dimension, beside what it says it costs.

    python examples/audits/diffprivlib_norms.py

Its model minimizes loss + w^2 / (2 C) + b w, where b is random (Chaudhuri, Monteleoni & Sarwate,
JMLR 2011). For each model w there is one b, so the density of w is that of b there, times db/dw.
db/dw is 1 / C plus the curvature of the loss, and a record adds up to norm^2 / 4 to it. Version
0.6.6 charges norm / 4 (``mechanisms/vector.py``). That is less where the norm is above one. Needs
numpy and scipy only: the formulas are the library's, written again.
"""

import numpy as np
from scipy.special import expit

WEIGHTS = np.linspace(-20.0, 20.0, 400_001)


def log_density(x: float, y: int, *, epsilon: float, norm: float, C: float) -> np.ndarray:
    """Returns log p(w), up to a constant, of a data set of one record (x, y)."""
    rest = epsilon - 2.0 * np.log1p(0.25 * norm * C)  # what is left for the noise
    assert rest > 0.0, "the library then regularizes more; not looked at here"
    gradient = (expit(WEIGHTS * x) - y) * x
    curvature = expit(WEIGHTS * x) * expit(-WEIGHTS * x) * x * x
    noise = np.abs(gradient + WEIGHTS / C)
    return -noise * rest / (2.0 * norm) + np.log(curvature + 1.0 / C)


def least_epsilon(*, epsilon: float, norm: float, C: float) -> float:
    """Returns how far the density moves if the record (norm, 1) becomes (0, 0) or (norm, 0)."""
    own, zero, turned = (
        log_density(x, y, epsilon=epsilon, norm=norm, C=C)
        for x, y in ((norm, 1), (0.0, 0), (norm, 0))
    )
    return float(max(np.abs(own - zero).max(), np.abs(own - turned).max()))


def main() -> None:
    print("norm      C   says   at least")
    for norm, C in [(1.0, 0.5), (1.0, 0.1), (10.0, 0.1), (30.0, 0.03), (100.0, 0.01)]:
        found = least_epsilon(epsilon=1.0, norm=norm, C=C)
        print(f"{norm:4.0f} {C:6.2f}   1.00   {found:8.2f}")


if __name__ == "__main__":
    main()
