"""The laboratory: how much do trained networks memorize?

    presets      the papers' figures as experiments          →  run: from a preset to a finished study, in one folder
    experiment   problems, sizes, trials as one plain value  →  planner, proposals: what to train next, a pure function
    study        trials claimed and finished, in a storage   →  work: claim, train, keep; executors: where it is trained
    engines      one run: engine, goal, outcome              →  engines: compiled (fast), stacked, readable
    results      tables, least sizes, files                  →  comparison: constructed sizes and bounds; fits
    capacity     the least size for arrays of your own

>>> from byheart.lab.config import Training, Uniform
>>> from byheart.lab.sources import ProblemSpec, make_problem
>>> from byheart.lab.engines.training import Goal, train
>>> problem = make_problem(ProblemSpec("random", N=8, n=3, d=6))
>>> train(problem, Uniform(blocks=4), Training(epochs=500, rate=0.03, clip=0.1), Goal(loss=0.01)).state
'memorized'
"""
