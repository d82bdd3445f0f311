"""95 % intervals of a share of episodes, by SciPy, which is loaded when an interval is asked for: it takes a second."""


def share_interval(count: int, of: int) -> tuple[float, float]:
    """Return the lower and upper end of Wilson's interval of a share: ``count`` episodes ``of`` so many."""
    from scipy.stats import binomtest  # noqa: PLC0415 -- see the module

    found = binomtest(count, of).proportion_ci(0.95, method="wilson")
    return float(found.low), float(found.high)


def largest_share(count: int, of: int) -> float:
    """Return the one-sided upper bound of a share by the exact binomial distribution (Clopper and Pearson)."""
    from scipy.stats import binomtest  # noqa: PLC0415 -- see the module

    return float(binomtest(count, of, alternative="less").proportion_ci(0.95, method="exact").high)
