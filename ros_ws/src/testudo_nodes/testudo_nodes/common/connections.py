"""Publishers and subscriptions of one configuration of a node, destroyed together when it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testudo_nodes.common.clock import Tempo
from testudo_nodes.common.qos import OFFERED, REQUESTED, mismatch_of_offer, mismatch_of_request


class Connections:
    """Creates publishers and subscriptions on a node's clock, with the quality of service of their topics."""

    def __init__(self, clock: Tempo, on_mismatch: Callable[[str], None]) -> None:
        """Remember the clock, and the function that is called with a sentence where quality of service differs."""
        self._clock, self._on_mismatch = clock, on_mismatch
        self._destroyers: list[Callable[[], Any]] = []

    def publisher(self, kind: type, topic: str) -> Any:
        """Return a new publisher; the last part of the topic names its quality of service."""
        name = topic.rpartition("/")[2]
        events = mismatch_of_offer(topic, self._on_mismatch)
        publisher = self._clock.publisher(kind, topic, OFFERED[name], event_callbacks=events)
        self.on_close(lambda: self._clock.drop(publisher))
        return publisher

    def subscribe(
        self, kind: type, topic: str, callback: Callable[[Any], None], quality: str = "", *, raw: bool = False
    ) -> None:
        """Subscribe to a topic; ``quality`` names its quality of service, by default the last part of the topic."""
        profile = REQUESTED[quality or topic.rpartition("/")[2]]
        events = mismatch_of_request(topic, self._on_mismatch)
        subscription = self._clock.listen(kind, topic, callback, profile, raw=raw, event_callbacks=events)
        self.on_close(lambda: self._clock.drop(subscription))

    def on_close(self, destroy: Callable[[], Any]) -> None:
        """Call a function when the connections are closed."""
        self._destroyers.append(destroy)

    def close(self) -> None:
        """Destroy everything, the newest first."""
        for destroy in reversed(self._destroyers):
            destroy()
        self._destroyers.clear()
