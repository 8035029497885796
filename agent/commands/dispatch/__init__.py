"""`pgo-agent dispatch`: winners of several cases behind guards in one launcher, with a proof for each region."""
