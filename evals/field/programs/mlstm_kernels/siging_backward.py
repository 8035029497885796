import torch
from mlstm_kernels.torch.chunkwise.triton_xl_chunk_siging import mlstm_siging_chunkwise__xl_chunk


def reference(q, k, v, i, f):
    log_forget = torch.nn.functional.logsigmoid(f).cumsum(dim=-1)
    decay = (log_forget[..., :, None] - log_forget[..., None, :]).tril().exp().tril()
    scores = (q.float() @ k.float().transpose(-1, -2)) * q.shape[-1] ** -0.5
    return (scores * decay * torch.sigmoid(i)[..., None, :]) @ v.float()


def test_siging():
    torch.manual_seed(0)
    heads, length, dim_qk, dim_v = 8, 1024, 256, 512
    q = torch.randn(1, heads, length, dim_qk, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    k = torch.randn(1, heads, length, dim_qk, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    v = torch.randn(1, heads, length, dim_v, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    i = torch.randn(1, heads, length, device="cuda")
    f = torch.randn(1, heads, length, device="cuda") + 2.0
    grad = torch.randn(1, heads, length, dim_v, device="cuda", dtype=torch.bfloat16)

    out = mlstm_siging_chunkwise__xl_chunk(q, k, v, i, f, normalize=False, autocast_kernel_dtype=torch.bfloat16)
    actual = torch.autograd.grad(out, (q, k, v), grad)
    expected_out = reference(q, k, v, i, f)
    expected = torch.autograd.grad(expected_out, (q, k, v), grad.float())

    torch.testing.assert_close(out.float(), expected_out, rtol=5e-2, atol=1e-1)
    for actual_grad, expected_grad in zip(actual, expected, strict=True):
        torch.testing.assert_close(actual_grad, expected_grad, rtol=5e-2, atol=2e-1)
