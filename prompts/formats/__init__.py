"""The forms that an answer may have, a template each with one example that the reader of replies understands."""
