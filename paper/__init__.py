"""The figures, the table and the bounds of the paper, measured again: ``python -m paper --out DIR``.

Each module that `report.NAMES` lists reproduces one of them: its ``run(run)`` takes a `Run`, writes figures and their
numbers to its folder, and returns an `Outcome`. `report` runs them and writes one page; `baselines` has the methods
that the paper compares with. This folder is part of the repository, not of the installed package.
"""
