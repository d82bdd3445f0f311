"""A platoon of cars under an exact shield and under Testudo's braking rule, driven greedily, at random and by learners.

In: options of `testudo bench platoon`. Out: a `BenchResult`: what the shields admit, unsafe episodes, costs.
"""
