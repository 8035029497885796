"""Launches plans through the CUDA driver, plain and instrumented, in memory that is filled first."""
