"""The store beside a model that keeps everything in dicts and computes each snapshot anew."""

import dataclasses
import math

import numpy as np
from hotbay.datalayer.endpoint import EndpointMetadata, EndpointState, Metrics
from hotbay.datalayer.store import AGE_RESOLUTION_S, EndpointStore
from hotbay.datalayer.tables.freshness import Freshness, StalePolicy
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

LIMIT_S = 0.5
names = st.sampled_from("abcd")
shares = st.sampled_from([0.0, 0.5, 1.0])


@dataclasses.dataclass
class Known:
    """What the model knows of one endpoint."""

    metadata: EndpointMetadata
    values: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    attribute: float = math.nan
    admits: bool = True
    slow_start: float = 1.0


class LikeDicts(RuleBasedStateMachine):
    """Each rule does the same to both; time goes on in steps that pass and do not pass the limits."""

    @initialize(policy=st.sampled_from(StalePolicy))
    def start(self, policy: StalePolicy) -> None:
        self.policy = policy
        self.store = EndpointStore(Freshness(stale_after_s=LIMIT_S, policy=policy))
        self.store.declare_attributes({"x": "f32"})
        self.known: dict[str, Known] = {}
        self.words: dict[str, EndpointState] = {}
        self.now = 10.0

    @rule(step=st.sampled_from([0.0, AGE_RESOLUTION_S, LIMIT_S, 2 * LIMIT_S]))
    def go_on(self, step: float) -> None:
        self.now += step

    @rule(name=names, port=st.integers(1, 2), weight=shares)
    def upsert(self, name: str, port: int, weight: float) -> None:
        metadata = EndpointMetadata(name, name, "10.0.0.1", port, weight=weight)
        self.store.upsert(metadata)
        if name in self.known and self.known[name].metadata.port == port:
            self.known[name].metadata = metadata
        else:
            self.known[name] = Known(metadata)

    @rule(name=names)
    def delete(self, name: str) -> None:
        assert self.store.delete(name) is (self.known.pop(name, None) is not None)

    @rule(name=names, values=st.dictionaries(st.sampled_from(["waiting", "kv_usage"]), shares))
    def report(self, name: str, values: dict[str, float]) -> None:
        assert self.store.update_metrics(name, Metrics(**values), self.now) is (name in self.known)  # type: ignore[arg-type]  # both are figures
        if name in self.known:
            self.known[name].values.update({field: (value, self.now) for field, value in values.items()})

    @rule(name=names, value=st.none() | shares)
    def put(self, name: str, value: float | None) -> None:
        self.store.put_attributes(name, {"x": value}, self.now)
        if name in self.known:
            self.known[name].attribute = math.nan if value is None else value

    @rule(name=names, admits=st.booleans(), slow_start=shares)
    def judge(self, name: str, admits: bool, slow_start: float) -> None:
        self.store.set_availability(name, healthy=math.nan, slow_start=slow_start, admits=admits)
        if name in self.known:
            self.known[name].admits, self.known[name].slow_start = admits, slow_start

    @rule(name=names, state=st.none() | st.sampled_from(EndpointState))
    def override(self, name: str, state: EndpointState | None) -> None:
        self.store.override(name, state=state, weight=None)
        if state is None:
            self.words.pop(name, None)
        else:
            self.words[name] = state

    @rule(name=names)
    def work(self, name: str) -> None:
        if name in self.known:
            self.store.ledger.started(name, 7)

    @invariant()
    def shows_what_the_model_does(self) -> None:
        last = self.store.snapshot
        snapshot = self.store.publish(self.now)
        assert {endpoint_id for endpoint_id in snapshot.ids if endpoint_id} == self.known.keys()
        for row, endpoint_id in enumerate(snapshot.ids):
            known = self.known.get(endpoint_id)
            found = {name: column[row].item() for name, column in snapshot.columns.items()}
            if known is None:
                assert all(math.isnan(value) or value == -1 for value in found.values())
                assert not snapshot.live[row]
                continue
            assert snapshot.row_of[endpoint_id] == row
            state = self.words.get(endpoint_id, EndpointState.ACTIVE)
            assert snapshot.endpoints[row] == dataclasses.replace(known.metadata, state=state)
            assert snapshot.live[row] == (known.admits and state is EndpointState.ACTIVE)
            assert found["endpoint.weight"] == known.metadata.weight
            assert found["endpoint.slow_start"] == known.slow_start
            assert found["endpoint.in_flight_tokens"] == 7 * self.store.ledger.in_flight(endpoint_id)
            np.testing.assert_equal(found["attribute.x"], known.attribute)
            for field in ("waiting", "kv_usage"):
                # What was published last is at most as old as ages may be.
                value, at = known.values.get(field, (math.nan, math.nan))
                is_hidden = self.policy is StalePolicy.UNKNOWN and snapshot.at - at > LIMIT_S
                np.testing.assert_equal(found[f"endpoint.{field}"], math.nan if is_hidden else value)
        assert self.now - snapshot.at < AGE_RESOLUTION_S or not self.known
        assert not any(column.flags.writeable for column in snapshot.columns.values())
        assert snapshot is last or snapshot.epoch == last.epoch + 1


TestLikeDicts = LikeDicts.TestCase
