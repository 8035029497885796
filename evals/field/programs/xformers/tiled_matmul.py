import torch
from xformers.ops import tiled_matmul


def test_query_key_value():
    torch.manual_seed(0)
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    wq = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) * 0.02
    wk = torch.randn(1024, 4096, device="cuda", dtype=torch.bfloat16) * 0.02
    wv = torch.randn(1024, 4096, device="cuda", dtype=torch.bfloat16) * 0.02

    ((q, k, v),) = tiled_matmul([[x]], [[wq.t(), wk.t(), wv.t()]])
    for actual, weight in ((q, wq), (k, wk), (v, wv)):
        expected = (x.float() @ weight.float().t()).bfloat16()
        torch.testing.assert_close(actual, expected, rtol=2e-2, atol=2e-2)
