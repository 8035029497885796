"""Changes of a traced graph, and of what it is traced with, that leave what it computes."""

from typing import Any

import torch


def drop_unread(graph: Any) -> None:
    """Drop the operations on tensors that have no values, by which a model is made whose weights are arguments."""
    for node in reversed(graph.graph.nodes):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.is_meta and not node.users:
            graph.graph.erase_node(node)
    graph.recompile()


def on_host(value: Any) -> Any:
    """Return a tensor of the host with the sizes and strides of another one; what is no tensor, as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    with value.fake_mode:
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="cpu")


def on_device(graph: Any) -> Any:
    """Have the operations of a graph that name the host make their tensors on the device."""
    for node in graph.graph.nodes:
        if isinstance(node.kwargs.get("device"), torch.device):
            node.kwargs = {**node.kwargs, "device": torch.device("cuda", 0)}
    graph.recompile()
    return graph
