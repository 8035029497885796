"""Knowledge of one thing each, at most about 40 lines: shown where the profile asks for it, not always."""
