"""The paper's figures, table and bounds, each measured again by one module.

A module has ``run(out, quick=False, seed=0, n_jobs=None, advance=...)``, which writes pictures and the numbers behind
them to a folder and returns an `Outcome`.
"""
