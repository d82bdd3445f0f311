"""The unmodified cflib flies a simulated Crazyflie through time-outs and losses.

In: options of `testudo bench radio`.
Out: a `BenchResult`.
"""
