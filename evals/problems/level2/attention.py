import torch
import torch.nn as nn


class Model(nn.Module):
    """Attention of several heads, step by step."""

    def __init__(self, heads):
        super().__init__()
        self.heads = heads

    def forward(self, q, k, v):
        batch, length, features = q.shape
        split = batch, length, self.heads, features // self.heads
        q, k, v = (t.view(split).transpose(1, 2) for t in (q, k, v))
        scores = torch.matmul(q, k.transpose(-2, -1)) / (features // self.heads) ** 0.5
        return torch.matmul(torch.softmax(scores, dim=-1), v).transpose(1, 2).reshape(batch, length, features)


batch_size = 4
length = 512
features = 512
heads = 8


def get_inputs():
    shape = batch_size, length, features
    return [torch.randn(shape), torch.randn(shape), torch.randn(shape)]


def get_init_inputs():
    return [heads]
