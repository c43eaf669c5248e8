"""What `testing.PluginHarness` does for policies of flow control: it calls their methods, because no host does yet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cmp_to_key
from typing import NoReturn

from hotbay_sdk._errors import BadResultError, Failed, attempt, fault_of
from hotbay_sdk._flow_points import Band, InFlightRequest, QueuedRequest
from hotbay_sdk._instances import Instance
from hotbay_sdk._results import number
from hotbay_sdk.protocol.messages import CallError


class PolicyHarness(ABC):
    """Policies of flow control. Methods raise `PluginCallError` for what the plugin raises, and for what no host could use."""

    @abstractmethod
    def _instance_of(self, name: str) -> Instance: ...

    @abstractmethod
    def _raise(self, error: CallError) -> NoReturn: ...

    def fairness(self, name: str, band: Band) -> str | None:
        """The key of the flow that a fairness policy lets go next."""
        found = self._policy(name, "fairness", "pick", band)
        if found is not None and not any(flow.key == found and flow.queue for flow in band.flows):
            self._refuse(f"pick returned {ascii(found)[:80]}, expected the key of a flow that has requests, or None")
        return found  # type: ignore[return-value]  # a key is text

    def ordering(self, name: str, requests: Sequence[QueuedRequest]) -> list[QueuedRequest]:
        """Requests in the order of an ordering policy; equal ones stay as they are."""
        return sorted(requests, key=cmp_to_key(lambda a, b: self._compared(name, "ordering", a, b)))

    def limits(
        self, name: str, saturation: float, priorities: Sequence[int], ceilings: Sequence[float] | None = None
    ) -> list[float]:
        """Ceilings that a usage limit policy gives the priorities, which are descending."""
        given = [1.0] * len(priorities) if ceilings is None else list(ceilings)
        found = self._policy(name, "usage_limit", "limits", saturation, list(priorities), given)
        if not isinstance(found, (list, tuple)) or len(found) != len(priorities):
            self._refuse(f"limits returned {ascii(found)[:80]}, expected {len(priorities)} numbers: one a priority")
        limits = [number(item) for item in found]
        if not all(limit >= 0 for limit in limits) or sorted(limits, reverse=True) != limits:
            self._refuse(f"limits returned {limits}, expected numbers from 0 up, none larger than the one before it")
        return limits

    def eviction_order(self, name: str, requests: Sequence[InFlightRequest]) -> list[InFlightRequest]:
        """Requests in the order in which an eviction ordering policy gives them up."""
        return sorted(requests, key=cmp_to_key(lambda a, b: self._compared(name, "eviction_order", a, b)))

    def eviction_filter(self, name: str, requests: Sequence[InFlightRequest]) -> list[InFlightRequest]:
        """The requests that an eviction filter lets be given up."""
        return [request for request in requests if self._flag(name, "eviction_filter", "accept", request)]

    def _compared(self, name: str, point: str, a: object, b: object) -> int:
        before, after = self._flag(name, point, "less", a, b), self._flag(name, point, "less", b, a)
        if before and after:
            self._refuse("less says of two requests that each goes before the other")
        return after - before

    def _flag(self, name: str, point: str, method: str, *arguments: object) -> bool:
        found = self._policy(name, point, method, *arguments)
        if not isinstance(found, bool):
            self._refuse(f"{method} returned a {type(found).__name__}, expected true or false")
        return found

    def _policy(self, name: str, point: str, method: str, *arguments: object) -> object:
        instance = self._instance_of(name)
        if point not in instance.spec.methods:
            raise ValueError(f"{name} of type {instance.spec.name} does not answer {point}")
        outcome = attempt(getattr(instance.object, method), *arguments)
        if isinstance(outcome, Failed):
            self._raise(fault_of(outcome.fault))
        return outcome

    def _refuse(self, message: str) -> NoReturn:
        self._raise(fault_of(BadResultError(message)))
