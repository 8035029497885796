"""What may answer prompts, behind one interface (`base.py`)."""
