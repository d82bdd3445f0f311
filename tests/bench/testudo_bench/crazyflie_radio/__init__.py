"""Time-outs and losses of the radio link between the unmodified cflib and a simulated Crazyflie.

In: options of `testudo bench radio`.
Out: a `BenchResult`.
"""
