import torch
from flashnn.triton_kernels.logits_processor import triton_logits_processor_forward


def reference(scores, penalty, prompts):
    out = scores.clone()
    for row, ids in enumerate(prompts):
        seen = scores[row, ids]
        out[row, ids] = torch.where(seen <= 0, seen * penalty[row], seen / penalty[row])
    return out


def test_repetition_penalty():
    torch.manual_seed(0)
    batch, vocab = 64, 32000
    lengths = torch.randint(128, 2048, (batch,)).tolist()
    scores = torch.randn(batch, vocab, device="cuda")
    penalty = 1.0 + torch.rand(batch, device="cuda")
    prompts = [torch.randperm(vocab, device="cuda")[:length] for length in lengths]
    expected = reference(scores, penalty, prompts)

    pointers = torch.tensor([ids.data_ptr() for ids in prompts], device="cuda")
    triton_logits_processor_forward(
        scores, penalty, pointers, torch.tensor(lengths, device="cuda"), max(lengths), "REPETITION"
    )
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-6)
