"""`report`: what a run came to and why, as one page that loads nothing and as Markdown for a pull request.

`collect.py` gathers from the record, by parts: `timings.py` the last session, `lineage.py` what led to the winner,
`correctness.py` the evidence, `comparison.py` builds and texts before and after, `profiles.py` the kept profiles,
`reproduce.py` the commands. `page.py` and `markdown.py` write them down. Nothing here runs a kernel or measures
anything.
"""
