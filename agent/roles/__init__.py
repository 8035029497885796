"""The roles of the loop that look before the optimizer proposes: which passes to take, and what they say in short."""
