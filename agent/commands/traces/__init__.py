"""Traces of tritonparse: what a model launched, as targets."""
