"""Whether a task shows what learning is good for: the rule by which the README's table names it."""

SUCCESS_MORE, RETURN_TIMES = 0.3, 2.0
"""What a trained policy needs over the hand-written one: this much more success, or its return times this."""


def earns_its_place(success: tuple[float, float] | None, returns: tuple[float, float]) -> bool:
    """Return whether learning beats the hand-written policy clearly; each pair is (trained, hand-written).

    ``success`` is None for a task without one. A return counts only where that of the hand-written policy is positive:
    twice a cost is none the better.
    """
    if success is not None and success[0] - success[1] >= SUCCESS_MORE - 1e-9:
        return True
    return returns[1] > 0 and returns[0] >= RETURN_TIMES * returns[1]


def worth_text(success: tuple[float, float] | None, returns: tuple[float, float]) -> str:
    """Return a sentence with the verdict and its figures; each pair is (trained, hand-written)."""
    verdict = "earns" if earns_its_place(success, returns) else "does not earn"
    more = "" if success is None else f"success {success[0]:.2f} against {success[1]:.2f}, "
    return (
        f"Learning {verdict} its place here: {more}return {returns[0]:.2f} against {returns[1]:.2f} by hand "
        f"(asked for: {SUCCESS_MORE} more success, or {RETURN_TIMES:g} times a positive return)."
    )
