"""Annealing policies: how temperature and step change while a sampler or a model runs, and when it stops.

A policy is a frozen dataclass; its fields are the constants of the rule. What changes during a run is a separate state:
``state = policy.init(...)``, then ``state = policy.update(state, ...)`` for each observation. States are immutable too
and convert to and from arrays for files.

=================  ========  ===========================================================  ========================
policy             module    rule                                                         used by
=================  ========  ===========================================================  ========================
`StagedCooling`    staged    stages at eta times the theory's bound on the temperature    `solve`, `solve_batch`
`AdaptiveCooling`  adaptive  cools on stalls, damps steps, restores the best model        `WassersteinNMF`, `Oracle`
`EpochDecay`       paper     the paper's factor for every epoch                           `WassersteinNMF`
`ConditionalDecay` paper     that factor while V(z) is above a fraction of the cost       `WassersteinNMF`
`PlateauCooling`   plateau   cools and damps when the objective stops falling             barycenter, classifier
`CoolingStages`    staged    fixed stages, with steps that grow while gradients agree     `mixture_coordinates`
`GapTracking`      tracking  keeps the gap between V(z) and its lower bound at a target   `Oracle`, PyTorch
`GeometricDecay`   tracking  a power of a factor, not below a floor                       `torch.GibbsTemperature`
=================  ========  ===========================================================  ========================

The exact evaluation of a sample of problems, which some policies observe, is in `gibbsot.oracle.evaluation`.
"""
