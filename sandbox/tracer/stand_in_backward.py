"""Calls the backward methods of a user's autograd Functions, where PyTorch's engine would need a real GPU.

Relies on a custom Function's node being its context, and on what a node knows of its outputs (`_input_metadata`).
Gradients have the right shapes and no values: nothing is computed on fake tensors.
"""

from collections.abc import Iterator
from typing import Any

import torch

_given: dict[int, tuple[Any, list[bool]]] = {}  # id of a node -> it, and which of its Function's results are tensors


def install() -> None:
    apply = torch.autograd.Function.__dict__["apply"].__func__

    def noted(cls: Any, *args: Any, **kwargs: Any) -> Any:
        out = apply(cls, *args, **kwargs)
        results = _listed(out) if isinstance(out, torch.Tensor | list | tuple) else []
        for node in {t.grad_fn for t in results if isinstance(t, torch.Tensor)} - {None}:
            _given[id(node)] = node, [isinstance(t, torch.Tensor) for t in results]
        return out

    torch.autograd.Function.apply = classmethod(noted)
    torch.Tensor.backward = _backward
    torch.autograd.backward = _all_backward
    torch.autograd.grad = _grad


def _backward(tensor: Any, *_args: Any, **_kwargs: Any) -> None:
    for node in _nodes(tensor.grad_fn):
        _run(node)
        if (leaf := getattr(node, "variable", None)) is not None:
            leaf.grad = torch.empty_like(leaf)


def _all_backward(tensors: Any, *_args: Any, **_kwargs: Any) -> None:
    for tensor in _listed(tensors):
        _backward(tensor)


def _grad(outputs: Any, inputs: Any, grad_outputs: Any = None, *_args: Any, **_options: Any) -> tuple[Any, ...]:
    given = [] if grad_outputs is None else _listed(grad_outputs)
    for output, gradient in zip(_listed(outputs), given, strict=False):
        if gradient is not None and gradient.shape != output.shape:
            raise RuntimeError(f"a gradient of shape {tuple(gradient.shape)} of an output of {tuple(output.shape)}")
    for output in _listed(outputs):
        for node in _nodes(output.grad_fn):
            _run(node)
    return tuple(torch.empty_like(t) for t in _listed(inputs))


def _run(node: Any) -> None:
    """Call the method `backward` of a custom Function with gradients of its outputs' shapes."""
    function = getattr(node, "_forward_cls", None)
    if function is not None:
        with torch.no_grad():
            known = node._input_metadata
            _, tensors = _given.get(id(node), (node, [True] * len(known)))
            gradients = [torch.empty(tuple(m.shape), dtype=m.dtype, device=m.device) for m in known]
            function.backward(node, *(g if t else None for g, t in zip(gradients, tensors, strict=True)))


def _nodes(root: Any) -> Iterator[Any]:
    """Yield every node of the graph, those of outputs first."""
    waiting, seen = [root] if root is not None else [], set[Any]()
    while waiting:
        node = waiting.pop(0)
        if node in seen:
            continue
        seen.add(node)
        yield node
        waiting += [n for n, _ in node.next_functions if n is not None]


def _listed(tensors: Any) -> list[Any]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
