"""The figures, the table and the bounds of the paper; each module reproduces one of them.

A module has ``run(out, quick=False, seed=0, n_jobs=None, advance=...)``, which writes figures and their numbers to a
folder and returns an `Outcome`.
"""
