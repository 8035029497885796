"""Skills for coding agents, in the open format: a folder with SKILL.md. `pgo-agent skill install` writes them."""
