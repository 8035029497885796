"""What a person sees of a profile: in the terminal, as a page, as a trace for Perfetto."""
