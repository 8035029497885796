"""What a person sees: tables, profiles, reports and charts. Draws, and measures nothing."""
