"""How long does it take? The clock, the order of visits, when to stop, and the verdict on the samples."""
