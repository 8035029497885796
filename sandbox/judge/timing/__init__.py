"""How long does it take? The clock, the order of visits, when to stop, and what the samples come to."""
