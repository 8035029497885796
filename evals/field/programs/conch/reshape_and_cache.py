import torch
from conch.ops.vllm.reshape_and_cache import reshape_and_cache


def test_reshape_and_cache():
    torch.manual_seed(0)
    tokens, heads, dim, pages, page_size = 4096, 32, 128, 1024, 16
    key = torch.randn(tokens, heads, dim, device="cuda", dtype=torch.bfloat16)
    value = torch.randn_like(key)
    key_cache = torch.zeros(pages, page_size, heads, dim, device="cuda", dtype=torch.bfloat16)
    value_cache = torch.zeros_like(key_cache)
    slots = torch.randperm(pages * page_size, device="cuda")[:tokens]

    expected_key, expected_value = key_cache.clone(), value_cache.clone()
    expected_key.view(-1, heads, dim)[slots] = key
    expected_value.view(-1, heads, dim)[slots] = value

    reshape_and_cache(key, value, key_cache, value_cache, slots)
    torch.testing.assert_close(key_cache, expected_key, rtol=0.0, atol=0.0)
    torch.testing.assert_close(value_cache, expected_value, rtol=0.0, atol=0.0)
