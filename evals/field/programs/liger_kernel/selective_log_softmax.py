import torch
from liger_kernel.ops.grpo_loss import fused_selective_log_softmax


def test_selective_log_softmax():
    torch.manual_seed(0)
    batch, length, vocab, temperature = 4, 1024, 32000, 0.9
    logits = torch.randn(batch, length + 1, vocab, device="cuda", dtype=torch.bfloat16)
    ids = torch.randint(0, vocab, (batch, length), device="cuda")

    actual = fused_selective_log_softmax(logits, ids, temperature)
    log_probs = torch.log_softmax(logits[:, :-1].float() / temperature, dim=-1)
    expected = log_probs.gather(dim=-1, index=ids[..., None]).squeeze(-1)
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-3)
