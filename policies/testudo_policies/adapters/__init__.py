"""Adapters to the interfaces of other reinforcement-learning libraries.

In: an `Environment` of testudo_sim.
Out: a brax `Env`, a JaxMARL `MultiAgentEnv`, a PettingZoo `ParallelEnv` or a Gymnasium `VectorEnv`.
"""
