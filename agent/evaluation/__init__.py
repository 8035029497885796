"""Evaluates candidates and baselines: builds, screens, checks and measures them, and decides what is measured next."""
