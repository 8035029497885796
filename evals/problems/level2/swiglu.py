import torch
import torch.nn as nn
from torch.nn import functional


class Model(nn.Module):
    """The gate of a SwiGLU layer: two halves of one row."""

    def __init__(self, features, hidden):
        super().__init__()
        self.project = nn.Linear(features, 2 * hidden, bias=False)

    def forward(self, x):
        gate, up = self.project(x).chunk(2, dim=-1)
        return functional.silu(gate) * up


batch_size = 8
length = 512
features = 512
hidden = 1408


def get_inputs():
    return [torch.randn(batch_size, length, features)]


def get_init_inputs():
    return [features, hidden]
