"""`pgo-agent export`: a candidate leaves as a module of its own, or in the form that another project loads."""
