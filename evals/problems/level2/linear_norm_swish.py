import torch
import torch.nn as nn


class Model(nn.Module):
    """A linear layer, group norm, a learned factor, and Swish twice."""

    def __init__(self, in_features, out_features, groups):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.norm = nn.GroupNorm(groups, out_features)
        self.weight = nn.Parameter(torch.randn(out_features))

    def forward(self, x):
        x = self.norm(self.linear(x))
        x = x * torch.sigmoid(x)
        x = x * self.weight
        return x * torch.sigmoid(x)


batch_size = 1024
in_features = 1024
out_features = 1024
groups = 16


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, groups]
