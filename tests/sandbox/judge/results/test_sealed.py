"""judge/sealed.py: sealed values come back to the bit, and without the seed they are random words."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.sandbox.judge.results import sealed
from pgo_agent.sandbox.judge.results.deviation import compare
from pgo_agent.sandbox.judge.results.sealed import Sealed, seal

CPU = torch.device("cpu")


def in_pieces(held: Sealed) -> torch.Tensor:
    return torch.cat([piece.clone() for piece in held.pieces(CPU)])


def as_on_a_gpu(values: torch.Tensor) -> Sealed:
    """What `seal` makes of a GPU's values, on the CPU, where nothing is mixed otherwise."""
    plain = seal(values)
    words = torch.empty_like(plain._words)
    key = sealed._written(words, (w.clone() for w in sealed._split(plain._words)), CPU)
    return Sealed(plain.shape, plain.dtype, words, key)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed, "PIECE", 64)


@given(st.lists(st.floats(width=32), min_size=1, max_size=300), st.booleans())
def test_sealed_values_come_back_to_the_bit(numbers: list[float], mixed: bool) -> None:
    values = torch.tensor(numbers, dtype=torch.float64)
    held = as_on_a_gpu(values) if mixed else seal(values)
    assert torch.equal(in_pieces(held).view(torch.int64), values.view(torch.int64))
    positions = torch.randint(len(values), (17,))
    assert torch.equal(held.at(positions).view(torch.int64), values[positions].view(torch.int64))


def test_without_the_seed_the_words_say_nothing_of_the_values() -> None:
    held = as_on_a_gpu(torch.zeros(640))
    ones = sum(bin(int(w) & (1 << 64) - 1).count("1") for w in held._words)
    assert abs(ones / (64 * 640) - 0.5) < 0.02
    assert len(set(held._words.tolist())) == 640, "each piece has a stream of its own"


def test_a_piece_is_wiped_when_the_next_one_is_taken() -> None:
    pieces = as_on_a_gpu(torch.ones(128)).pieces(CPU)
    first = next(pieces)
    assert bool((first == 1).all())
    next(pieces)
    assert not first.any()


@given(st.integers(0, 299), st.integers(0, 62))
def test_a_changed_bit_is_found_before_the_values_are_used(word: int, bit: int) -> None:
    held = as_on_a_gpu(torch.randn(300, dtype=torch.float64))
    held._words[word] ^= 1 << bit
    assert not sealed._same(held._words, held._key)
    with pytest.raises(sealed.Damaged):
        in_pieces(held)


def test_what_is_sealed_is_compared_as_it_was() -> None:
    values, x = torch.randn(1000, dtype=torch.float64), torch.randn(1000)
    assert compare(x, as_on_a_gpu(values)) == compare(x, values)


def test_integers_and_tensors_of_any_layout_are_sealed_as_they_read() -> None:
    matrix = torch.arange(200).reshape(10, 20).T
    assert torch.equal(in_pieces(seal(matrix)), matrix.reshape(-1)) and seal(matrix).dtype == torch.int64
    assert seal(torch.empty(0)).elements == 0 and list(seal(torch.empty(0)).pieces(CPU)) == []
