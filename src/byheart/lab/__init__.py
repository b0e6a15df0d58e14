"""The laboratory: how much do trained networks memorize?

    presets      the papers' figures as experiments
    study        experiment: problems, sizes, trials as one plain value; planner: the next trial, a pure function;
                 study: trials claimed and finished, in a storage; run: claim, train, keep, in one folder
    engines      training: one run; kernel (fast), pytorch, readable
    results      tables, least sizes, files, how they grow, the least size for arrays of your own
    comparison   constructed sizes and bounds beside the trained ones

>>> from byheart.lab.config import Training, Uniform
>>> from byheart.lab.problem import ProblemSpec, make_problem
>>> from byheart.lab.engines.training import Goal, train
>>> problem = make_problem(ProblemSpec("random", N=8, n=3, d=6))
>>> train(problem, Uniform(blocks=4), Training(epochs=500, rate=0.03, clip=0.1), Goal(loss=0.01)).state
'memorized'
"""
