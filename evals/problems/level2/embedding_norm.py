import torch
import torch.nn as nn


class Model(nn.Module):
    """Rows of a table by number, their places, and layer norm."""

    def __init__(self, words, length, features):
        super().__init__()
        self.table = nn.Embedding(words, features)
        self.places = nn.Parameter(torch.randn(length, features))
        self.norm = nn.LayerNorm(features)

    def forward(self, tokens):
        return self.norm(self.table(tokens) + self.places)


batch_size = 32
length = 256
words = 4096
features = 512


def get_inputs():
    return [torch.randint(0, words, (batch_size, length))]


def get_init_inputs():
    return [words, length, features]
