"""`report`: what a run came to and why, as one page that loads nothing and as Markdown for a pull request.

`facts.py` gathers from the record, by parts: `measured.py` the last session, `steps.py` what led to the winner,
`correct.py` the evidence, `compared.py` builds and texts before and after, `profiles.py` the kept profiles, `again.py`
the commands. `page.py` and `markdown.py` write them down. Nothing here runs a kernel or measures anything.
"""
