import torch
import torch.nn as nn


class Model(nn.Module):
    """Layer norm over the last dimension."""

    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return self.norm(x)


batch_size = 64
length = 256
features = 1024


def get_inputs():
    return [torch.randn(batch_size, length, features)]


def get_init_inputs():
    return [features]
