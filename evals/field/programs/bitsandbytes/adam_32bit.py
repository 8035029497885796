import torch
from bitsandbytes.backends.triton.ops import optimizer_update_32bit

torch.manual_seed(0)
LR, BETA1, BETA2, EPS, DECAY, STEP = 3e-4, 0.9, 0.95, 1e-8, 0.1, 7

grad = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) * 0.1
param = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
m = torch.randn(4096, 4096, device="cuda") * 0.01
v = torch.rand(4096, 4096, device="cuda") * 0.01

p32, g32 = param.float(), grad.float()
m_expected = BETA1 * m + (1 - BETA1) * g32
v_expected = BETA2 * v + (1 - BETA2) * g32 * g32
p32 = p32 * (1 - LR * DECAY)
update = (m_expected / (1 - BETA1**STEP)) / ((v_expected / (1 - BETA2**STEP)).sqrt() + EPS)
p_expected = (p32 - LR * update).bfloat16()

optimizer_update_32bit(
    "adam", grad, param, m, v, None, 0.0, 0.0, BETA1, BETA2, 0.0, 0.0, EPS, DECAY, STEP, LR, 1.0, skip_zeros=False
)
torch.testing.assert_close(m, m_expected, rtol=1e-5, atol=1e-6)
torch.testing.assert_close(v, v_expected, rtol=1e-5, atol=1e-6)
torch.testing.assert_close(param, p_expected, rtol=1e-2, atol=1e-3)
