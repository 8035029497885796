"""`report`: the result of a run and its reasons, as one page that loads nothing and as Markdown for a pull request.

`collect.py` gathers the parts from the record: `timings.py` the last session, `lineage.py` what led to the winner,
`correctness.py` the evidence, `comparison.py` builds and texts before and after, `profiles.py` the stored profiles,
`reproduce.py` the commands. `page.py` and `markdown.py` write them. Nothing here runs a kernel or measures anything.
"""
