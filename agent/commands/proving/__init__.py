"""`pgo-agent prove`: a user's program with and without a patch, in turns in fresh processes."""
