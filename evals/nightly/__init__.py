"""What the optimizer comes to, night by night: targets, optimizers and seeds under one budget, on a GPU."""
