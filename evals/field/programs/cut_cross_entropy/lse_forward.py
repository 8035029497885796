import torch
from cut_cross_entropy import linear_cross_entropy

torch.manual_seed(0)
hidden = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
classifier = torch.randn(32000, 4096, device="cuda", dtype=torch.bfloat16) * 0.02
targets = torch.randint(0, 32000, (4096,), device="cuda")

with torch.no_grad():
    loss = linear_cross_entropy(hidden, classifier, targets, reduction="none")

logits = (hidden @ classifier.T).float()
expected = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
torch.testing.assert_close(loss.float(), expected, rtol=1e-2, atol=5e-2)
