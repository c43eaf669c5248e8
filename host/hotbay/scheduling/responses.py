"""What becomes of requests after their decisions: where they are sent, how they are answered, that they came back empty.

Off every request's path: whoever is told is told by notices. The refs that are told are those of the plan of now, of the
decision's own arm as long as it is on trial: who learned from a generation that is gone would learn nothing. Refs kept warm in
other generations hear the same. Whoever listens to bodies is told of every end that the front door tells of: that is one for
each endpoint that a request was sent to, and one for a request that was decided and then sent nowhere.
"""

from collections.abc import Callable, Iterable, Mapping

from hotbay_sdk.protocol import Value

from hotbay.datalayer.tables.snapshot import Snapshot
from hotbay.scheduling.binding import Point
from hotbay.scheduling.decision import Arm, Picked
from hotbay.scheduling.mirrors import Mirrors
from hotbay.scheduling.notices import Notices, Pick
from hotbay.scheduling.plan import Learner, Plan
from hotbay.scheduling.request import InferenceRequest
from hotbay.scheduling.response_facts import NO_WANTS, ResponseFacts, ResponseWants, Usage

__all__ = ["Responses", "wants_of"]


def wants_of(plans: Iterable[Plan]) -> ResponseWants:
    """What the listeners of these plans want together."""
    listeners = [listener for plan in plans for listener in plan.listeners]
    of_headers = [listener for listener in listeners if listener.binding.point is Point.RESPONSE_HEADERS]
    of_bodies = [listener for listener in listeners if listener.binding.point is Point.RESPONSE_BODY]
    if not listeners:
        return NO_WANTS
    return ResponseWants(
        frozenset(name for listener in of_headers for name in listener.headers) if of_headers else None,
        body=bool(of_bodies),
        chunks=any(listener.every_chunk for listener in of_bodies),
        usage=bool(of_bodies),
        fields=frozenset(name for listener in of_bodies for name in listener.fields),
    )


class Responses:
    """See the module.

    Args:
        plan_of: the plan whose refs are told of a request that was decided in an arm.
        notices_of: what tells the process of a generation's number; None when it is gone.
        snapshot: the current one.
    """

    __slots__ = ("_mirrors", "_notices_of", "_plan_of", "_snapshot", "wants")

    def __init__(
        self,
        plan_of: Callable[[Arm | None], Plan | None],
        notices_of: Callable[[int], Notices | None],
        snapshot: Callable[[], Snapshot],
    ) -> None:
        self.wants = NO_WANTS
        self._plan_of = plan_of
        self._notices_of = notices_of
        self._snapshot = snapshot
        self._mirrors = Mirrors({})

    def published(self, plans: Iterable[Plan], mirrors: Mirrors) -> None:
        """Take what is told from now on, and which others hear it."""
        self.wants = wants_of(plans)
        self._mirrors = mirrors

    def sent(self, request: InferenceRequest, decision: Picked, endpoint_id: str) -> None:
        """See `Router.sent`."""
        plan = self._plan_of(decision.arm)
        if plan is None or not (plan.learners or plan.setters):
            return
        learners = [told for learner in plan.learners for told in (learner, *self._mirrors.of(learner))]
        # Those that set headers were asked before; their warm generations were not, and are to know as much.
        warm = [told for setter in plan.setters for told in self._mirrors.of(setter)]
        self._tell_pick((*learners, *warm), request, decision, endpoint_id, withdrawn=False)

    def withdraw(self, request: InferenceRequest, decision: Picked, endpoint_id: str) -> None:
        """See `Router.withdraw`."""
        plan = self._plan_of(decision.arm)
        if plan is not None and (plan.learners or plan.setters):
            all_of = [told for one in (*plan.learners, *plan.setters) for told in (one, *self._mirrors.of(one))]
            self._tell_pick(all_of, request, decision, endpoint_id, withdrawn=True)

    def headers(
        self, request: InferenceRequest, decision: Picked, endpoint_id: str, status: int, headers: Mapping[str, str]
    ) -> None:
        """See `Router.response_headers`."""
        if self.wants.headers is None:
            return
        for listener, notices in self._listening(decision, Point.RESPONSE_HEADERS):
            wanted: dict[str, Value] = {name: headers[name] for name in listener.headers if name in headers}
            told: dict[str, Value] = {"endpoint": endpoint_id, "profile": decision.profile, "status": status}
            notices.response(listener, request, {**told, "headers": wanted}, is_end=False)

    def body(self, request: InferenceRequest, decision: Picked, endpoint_id: str, facts: ResponseFacts) -> None:
        """See `Router.response_body`."""
        if not self.wants.body:
            return
        told: dict[str, Value] | None = None
        for listener, notices in self._listening(decision, Point.RESPONSE_BODY):
            if facts.end or listener.every_chunk:
                if told is None:
                    told = _told(decision, endpoint_id, facts)
                notices.response(listener, request, told, is_end=facts.end)

    def unsent(self, request: InferenceRequest, decision: Picked, *, is_left: bool) -> None:
        """A request was refused after it was known where it would go. `is_left`: by its client."""
        cause = "client-disconnect" if is_left else "error"
        self.body(request, decision, decision.endpoint.id, ResponseFacts(end=True, cause=cause))

    def _listening(self, decision: Picked, point: Point) -> Iterable[tuple[Learner, Notices]]:
        plan = self._plan_of(decision.arm)
        for listener in plan.listeners if plan is not None else ():
            if listener.binding.point is point:
                for told in (listener, *self._mirrors.of(listener)):
                    notices = self._notices_of(told.generation.number)
                    if notices is not None:
                        yield told, notices

    def _tell_pick(
        self,
        learners: Iterable[Learner],
        request: InferenceRequest,
        decision: Picked,
        endpoint_id: str,
        *,
        withdrawn: bool,
    ) -> None:
        results = {name: None if them is None else [it.id for it in them] for name, them in decision.results.items()}
        pick = Pick([endpoint_id], decision.profile, results)
        snapshot = self._snapshot()
        for learner in learners:
            notices = self._notices_of(learner.generation.number)
            if notices is not None:
                notices.sent(learner, request, pick, snapshot, withdrawn=withdrawn)


def _told(decision: Picked, endpoint_id: str, facts: ResponseFacts) -> dict[str, Value]:
    usage: Value = None if facts.usage is None else dict(zip(Usage._fields, facts.usage, strict=True))
    return {
        "endpoint": endpoint_id,
        "profile": decision.profile,
        "status": facts.status,
        "bytes": facts.bytes,
        "chunks": facts.chunks,
        "usage": usage,
        "end": facts.end,
        "cause": facts.cause,
        "first_byte": facts.first_byte,
        "ttft_us": facts.ttft_us,
        "elapsed_us": facts.elapsed_us,
    }
