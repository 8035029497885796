"""The corpora through the gate: their entries, what comes of them, and the report with both error rates."""
