"""`pgo-agent init`: a target skeleton for somebody's kernel. It reads the file and never runs it."""
