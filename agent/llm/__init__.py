"""Language models: asking them, reading what they answer, and the roles that they play. Knows of no run."""
