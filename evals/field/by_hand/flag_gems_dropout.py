def philox(counter, seed):
    """Four whole numbers of 32 bits for each counter, as tl.philox gives them."""
    low = 0xFFFFFFFF
    c, keys = [counter, counter * 0, counter * 0, counter * 0], [seed & low, seed >> 32]
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(b >> 32 & low) ^ c[1] ^ keys[0], b & low, (a >> 32 & low) ^ c[3] ^ keys[1], a & low]
        keys = [keys[0] + 0x9E3779B9 & low, keys[1] + 0xBB67AE85 & low]
    return c


# The GPU's generator has seed 0 and drew nothing before. A block of 1024 counters draws for four blocks of elements.
def reference(input, p):
    block = 512 if input.numel() <= 512 else 1024
    counters = torch.arange(-(-input.numel() // (4 * block)) * block, device=input.device).view(-1, 1, block)
    drawn = torch.cat(philox(counters, 0), 1).flatten()[: input.numel()].view(input.shape).to(torch.int32)
    kept = torch.where(drawn < 0, -1 - drawn, drawn).float() * 4.6566127342e-10 > p
    return torch.where(kept, input / (1 - p), 0.0), kept
