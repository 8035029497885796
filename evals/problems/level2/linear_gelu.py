import torch
import torch.nn as nn
from torch.nn import functional


class Model(nn.Module):
    """A linear layer, then GELU."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return functional.gelu(self.linear(x))


batch_size = 1024
in_features = 2048
out_features = 2048


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
