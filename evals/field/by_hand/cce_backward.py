# Blocks add to gradients that are stored in the inputs' type, one after another, in any order: each addition rounds.
NONDETERMINISTIC = True
TOLERANCE = dict(max_ratio=45, mean_ratio=36)  # of 250 such additions, computed in plain PyTorch: 33 and 26


def kernel(do, e, c, lse, valids, softcap, filter_eps, targets):
    c = c.detach().requires_grad_()  # its gradient is asked for by that
    return cce_backward_kernel(do, e, c, lse, valids, softcap, filter_eps, targets)


def reference(do, e, c, lse, valids, softcap, filter_eps, targets):
    share = torch.exp((e @ c.T).to(lse.dtype) - lse[:, None]) - torch.nn.functional.one_hot(targets, len(c))
    grad = (share * do[:, None]).to(e.dtype)
    return grad @ c, grad.T @ e


def inputs(case, generator):
    def normal(*shape):
        return torch.randn(shape, generator=generator, device=generator.device)

    e, c = normal(case["M"], case["N"]).bfloat16(), (normal(case["K"], case["N"]) * 0.02).bfloat16()
    targets = torch.randint(case["K"], (case["M"],), generator=generator, device=generator.device)
    given = {"valids": None, "softcap": None, "filter_eps": None, "targets": targets}
    return {"do": normal(case["M"]), "e": e, "c": c, "lse": torch.logsumexp((e @ c.T).float(), 1), **given}
