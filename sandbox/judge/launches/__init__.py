"""Launches plans through the CUDA driver, plain and instrumented, with memory that is filled before."""
