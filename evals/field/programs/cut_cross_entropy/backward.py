import torch
from cut_cross_entropy import linear_cross_entropy


def test_backward():
    torch.manual_seed(0)
    hidden = torch.randn(2048, 4096, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    classifier = (torch.randn(32000, 4096, device="cuda", dtype=torch.bfloat16) * 0.02).requires_grad_()
    targets = torch.randint(0, 32000, (2048,), device="cuda")
    grad = torch.randn(2048, device="cuda")

    # Without the filter gradients are exact; it would leave out what is small beside the loss of a trained model.
    loss = linear_cross_entropy(hidden, classifier, targets, reduction="none", filter_eps=None)
    loss.backward(grad.to(loss.dtype))
    actual = hidden.grad, classifier.grad

    hidden.grad = classifier.grad = None
    expected = torch.nn.functional.cross_entropy((hidden @ classifier.T).float(), targets, reduction="none")
    expected.backward(grad)
    torch.testing.assert_close(loss.float(), expected, rtol=1e-2, atol=5e-2)
    torch.testing.assert_close(actual[0], hidden.grad, rtol=5e-2, atol=1e-2)
    torch.testing.assert_close(actual[1], classifier.grad, rtol=5e-2, atol=1e-1)
