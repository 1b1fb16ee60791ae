"""arXiv 2510.04902 (DP-HYPE), Tables II and III: what is searched over here, and on what data.

::

    python examples/dp_hype/tables.py

Table I compares what algorithms promise and is no experiment: see the README beside this file. The
rows of the data sets that come with scikit-learn are counted. Needs PyTorch.
"""

from __future__ import annotations

import fashion_clients
from clients import CANDIDATES, DECAYS, MOMENTA, RATES, DataSet

FASHION_MNIST = (70_000, "784 (grey, 28 x 28)", 10)  # of Debian's dataset-fashion-mnist


def listed(values: tuple[float, ...] | list[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def main() -> None:
    print("| data set | records | numbers in a record | classes |\n|---|---|---|---|")
    for name, kind in (("digits", " (grey, 8 x 8)"), ("breast_cancer", "")):
        data = DataSet(name)
        records, features = data.x.shape
        print(f"| {name} | {records:,} | {features - 1}{kind} | {data.classes} |")
    print(f"| Fashion-MNIST | {FASHION_MNIST[0]:,} | {FASHION_MNIST[1]} | {FASHION_MNIST[2]} |")
    print("\n| hyperparameter | softmax regression | network, as in the paper |\n|---|---|---|")
    print(f"| learning rate | {listed(RATES)} | {listed(fashion_clients.RATES)} |")
    print(f"| its decay | {listed(DECAYS)} | {listed(fashion_clients.DECAYS)} |")
    print(f"| momentum | {listed(MOMENTA)} | {listed(fashion_clients.MOMENTA)} |")
    print(f"| candidates | {len(CANDIDATES)} | {len(fashion_clients.CANDIDATES)} |")


if __name__ == "__main__":
    main()
