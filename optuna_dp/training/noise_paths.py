"""Whether noise in trained weights passes through attention or recurrence on its way to an output.

Many of these models bear less noise (``docs/explanation/known-without-data.md``). The answer is
read off the graph that PyTorch keeps of how an output was computed. So it does not matter whose
modules a model is made of, or whether it has any: attention that is written out is found as well,
and frozen parts before all that is trained do not count.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.autograd.graph import Node

# Kernels that are all of attention, or all steps of a recurrent layer, in one.
_FUSED = {"attention": "attention", "attn": "attention", "rnn": "recurrence", "lstm": "recurrence"}
# Products of two arrays, of which one may be a weight. Those of whole batches may be of two arrays
# that both depend on the record.
_BATCHED = ("Bmm", "Baddbmm")
_PRODUCTS = ("Addmm", "Mm", "Addmv", "Mv", "Linear", "Convolution", *_BATCHED)
_SOFTMAX = ("Softmax", "SafeSoftmax")
# What reads rows of a weight: no product with it, so a tied embedding is no recurrence.
_LOOKUPS = ("Embedding", "EmbeddingBag", "Index", "IndexSelect", "Gather")
_LEAF = "AccumulateGrad"


def sequence_layers(outputs: torch.Tensor) -> set[str]:
    """Returns through what trained weights act on an output.

    "attention", "recurrence", both, or nothing of the kind.

    Attention is a kernel of that name, or a softmax of a product of two arrays neither of which is
    a weight, as of queries and keys. Recurrence is a kernel of that name, or a weight that is
    multiplied with what itself has made, as in a loop over the places of a sequence.

    Args:
        outputs: What a model has returned while gradients were recorded.
    """
    layers: set[str] = set()
    weights_behind: dict[Node, frozenset[Node]] = {}
    for node in _in_order(outputs.grad_fn):
        layers |= {layer for word, layer in _FUSED.items() if word in node.name().lower()}
        kind, parts = _kind(node), _parts(node)
        if kind in _SOFTMAX and any(map(_is_of_activations, _products_before(node))):
            layers.add("attention")
        behind = frozenset[Node]().union(*(weights_behind[part] for part in parts))
        if kind in _PRODUCTS:
            weights = {weight for part in parts if (weight := _weight(part)) is not None}
            if not weights.isdisjoint(behind):
                layers.add("recurrence")
            behind |= weights
        weights_behind[node] = behind
    return layers


def _kind(node: Node) -> str:
    """Returns the name of an operation, or of a weight's own node."""
    return node.name().split("::")[-1].split("Backward")[0]


def _parts(node: Node) -> list[Node]:
    """Returns what an operation was applied to, less what depends on no trained weight."""
    return [part for part, _ in node.next_functions if part is not None]


def _in_order(last: Node | None) -> Iterator[Node]:
    """Yields each operation once, after all those that it was applied to."""
    waiting = [] if last is None else [(last, False)]
    met: set[Node] = set()
    while waiting:
        node, are_parts_done = waiting.pop()
        if are_parts_done:
            yield node
        elif node not in met:
            met.add(node)
            waiting.append((node, True))
            waiting += [(part, False) for part in _parts(node)]


def _products_before(node: Node) -> list[Node]:
    """Returns the last products before an operation."""
    waiting, products, met = _parts(node), [], set()
    while waiting:
        part = waiting.pop()
        if part in met:
            continue
        met.add(part)
        if _kind(part) in _PRODUCTS:
            products.append(part)
        else:
            waiting += _parts(part)
    return products


def _is_of_activations(product: Node) -> bool:
    """Returns whether neither factor of a product is a weight."""
    return _kind(product) in _BATCHED and all(_weight(part) is None for part in _parts(product))


def _weight(node: Node) -> Node | None:
    """Returns the trained weight that an array is, transposed or cast; None if it is none."""
    while _kind(node) != _LEAF:
        if len(node.next_functions) != 1 or _kind(node) in _LOOKUPS:
            return None
        (part, _), *_ = node.next_functions
        if part is None:
            return None
        node = part
    return node
