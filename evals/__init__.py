"""Measurements of the project itself: recorded results, the bench, and the tables made of them."""
