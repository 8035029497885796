"""Kernels of public packages: from an ordinary program that uses one to a target, and to a gain."""
