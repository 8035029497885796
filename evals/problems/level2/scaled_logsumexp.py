import torch
import torch.nn as nn
from torch.nn import functional


class Model(nn.Module):
    """A linear layer, a factor, clamping, and the logarithm of a sum of exponentials."""

    def __init__(self, in_features, hidden, scale):
        super().__init__()
        self.linear = nn.Linear(in_features, hidden)
        self.scale = scale

    def forward(self, x):
        x = torch.clamp(self.linear(x) * self.scale, -10.0, 10.0)
        x = torch.logsumexp(x, dim=1, keepdim=True)
        return x * functional.mish(x)


batch_size = 1024
in_features = 1024
hidden = 2048
scale = 2.0


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, hidden, scale]
