"""Adapters to the interfaces of other reinforcement-learning libraries.

In: an `Environment` of testudo_sim.
Out: a brax `Env` or a JaxMARL `MultiAgentEnv`.
"""
