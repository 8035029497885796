"""The parts of the optimizer's prompt, a template each: facts of a run, rules, and what to answer."""
