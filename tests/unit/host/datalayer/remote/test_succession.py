"""Which run of a discovery plugin is heard, and what is in force when another one takes over."""

from dataclasses import dataclass, field

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.remote.records import Gone, Named, Record, Refused, Told
from hotbay.datalayer.remote.succession import MAX_ENDPOINTS, MAX_REFUSED, Drop, Put, Replace, Run, Step, Succession
from hotbay.errors import Problem
from hypothesis import given
from hypothesis import strategies as st

PROBLEM = Problem("CONFIG_INVALID", "bad")


def endpoint(name: str, weight: float = 1.0) -> EndpointMetadata:
    return EndpointMetadata(name, name, "10.0.0.1", 8000, weight=weight)


@dataclass
class Pool:
    """What is in force, by the steps of a succession."""

    succession: Succession[EndpointMetadata] = field(default_factory=Succession)
    held: dict[str, EndpointMetadata] = field(default_factory=dict)
    steps: list[Step[EndpointMetadata]] = field(default_factory=list)

    most: int = MAX_ENDPOINTS

    def take(self, run: Run[EndpointMetadata], *records: Record) -> None:
        for record in records:
            step = self.succession.take(run, record, self.held, most=self.most)
            match step:
                case Put(given):
                    self.held[given.id] = given
                case Drop(endpoint_id):
                    self.held.pop(endpoint_id, None)
                case Replace(endpoints):
                    self.held = {given.id: given for given in endpoints}
                    self.succession.follow(run)
            if step is not None:
                self.steps.append(step)

    def begin(self) -> Run[EndpointMetadata]:
        return self.succession.begin()

    def settle(self) -> None:
        step = self.succession.settle()
        if isinstance(step, Replace):
            self.held = {given.id: given for given in step.items}

    @property
    def ids(self) -> set[str]:
        return set(self.held)


def test_first_run_is_heard_when_it_has_told_everything() -> None:
    pool = Pool()
    run = pool.begin()
    pool.take(run, Named(endpoint("a")), Named(endpoint("b")), Gone("a"))
    assert pool.ids == set()
    pool.take(run, Told(), Named(endpoint("c")))
    assert pool.ids == {"b", "c"}


@pytest.mark.parametrize(("most", "named"), [(MAX_ENDPOINTS, MAX_ENDPOINTS - 1), (3, 2), (3, 3), (2, 3)])
def test_take_over_adds_no_more_of_others_than_there_may_be(most: int, named: int) -> None:
    pool = Pool(most=most)
    old = pool.begin()
    pool.take(old, Told())
    new = pool.begin()
    pool.take(new, *(Named(endpoint(f"n{n}")) for n in range(named)))
    pool.take(old, *(Named(endpoint(f"o{n}")) for n in range(2)), Named(endpoint("n0", 0.5)))
    pool.take(new, Told())
    assert (len(pool.held), pool.held["n0"].weight) == (max(most, named), 0.5)


def test_a_run_that_is_not_followed_leaves_the_one_before_in_force() -> None:
    pool = Pool()
    old = pool.begin()
    pool.take(old, Named(endpoint("a")), Told())
    refused = pool.begin()
    assert isinstance(pool.succession.take(refused, Told(), pool.held), Replace)
    assert pool.succession.in_force is old
    pool.take(old, Named(endpoint("b")))
    assert pool.ids == {"a", "b"}
    new = pool.begin()
    pool.take(new, Named(endpoint("c")), Told())
    assert pool.ids == {"c"}


def test_successor_takes_over_in_one_step_when_it_has_told_everything() -> None:
    pool = Pool()
    old = pool.begin()
    pool.take(old, Named(endpoint("a")), Named(endpoint("b")), Named(endpoint("d")), Told())
    new = pool.begin()
    pool.take(new, Named(endpoint("b", 0.5)), Gone("a"), Named(endpoint("c")))
    assert pool.ids == {"a", "b", "d"}
    before = len(pool.steps)
    pool.take(new, Told())
    assert pool.held == {"b": endpoint("b", 0.5), "c": endpoint("c")}
    assert len(pool.steps) == before + 1


def test_what_the_old_run_said_meanwhile_holds_until_the_new_one_speaks_of_it_or_has_had_time_to() -> None:
    pool = Pool()
    old = pool.begin()
    pool.take(old, Named(endpoint("a")), Named(endpoint("b")), Named(endpoint("c")), Told())
    new = pool.begin()
    # It looked before `d`, `e` and `f` came and `a`, `b` and `c` went, and told what it saw later.
    pool.take(old, Named(endpoint("d")), Named(endpoint("e")), Named(endpoint("f")), Gone("a"), Gone("b"), Gone("c"))
    pool.take(new, Named(endpoint("a")), Named(endpoint("b")), Named(endpoint("c")), Told())
    assert pool.ids == {"d", "e", "f"}
    pool.take(new, Named(endpoint("d")), Gone("e"), Gone("a"), Named(endpoint("b", 0.5)))
    assert pool.ids == {"b", "d", "f"}
    pool.settle()
    assert pool.held == {"b": endpoint("b", 0.5), "c": endpoint("c"), "d": endpoint("d")}
    assert pool.succession.settle() is None


def test_a_run_that_was_given_up_hears_nothing_more() -> None:
    pool = Pool()
    old = pool.begin()
    pool.take(old, Told())
    given_up = pool.begin()
    new = pool.begin()
    pool.take(old, Named(endpoint("a")))
    assert (given_up.contested, list(new.contested)) == ({}, ["a"])


def test_a_run_that_was_succeeded_is_not_heard() -> None:
    pool = Pool()
    old = pool.begin()
    pool.take(old, Named(endpoint("a")), Told())
    new = pool.begin()
    pool.take(new, Named(endpoint("a")), Told())
    pool.take(old, Gone("a"), Named(endpoint("b")))
    assert pool.ids == {"a"}


def test_a_run_that_died_leaves_what_it_told_until_the_next_has_told_everything() -> None:
    pool = Pool()
    dead = pool.begin()
    pool.take(dead, Named(endpoint("a")), Named(endpoint("b")), Told())
    new = pool.begin()
    pool.take(new, Named(endpoint("b")))
    assert pool.ids == {"a", "b"}
    pool.take(new, Told())
    assert pool.ids == {"b"}


def test_an_endpoint_that_is_refused_keeps_its_last_good_form_also_for_a_successor() -> None:
    pool = Pool()
    old = pool.begin()
    pool.take(old, Named(endpoint("a")), Told(), Refused("a", PROBLEM), Refused("", PROBLEM))
    assert pool.held == {"a": endpoint("a")}
    assert old.problems == {"a": PROBLEM, "": PROBLEM}
    new = pool.begin()
    pool.take(new, Refused("a", PROBLEM), Told())
    assert pool.held == {"a": endpoint("a")}
    pool.take(new, Gone("a"))
    assert (pool.held, new.problems) == ({}, {})
    pool.take(new, Refused("a", PROBLEM), Named(endpoint("a", 0.1)))
    assert (pool.held, new.problems) == ({"a": endpoint("a", 0.1)}, {})


def test_problems_that_are_kept_are_bounded() -> None:
    pool = Pool()
    run = pool.begin()
    pool.take(run, *(Refused(f"e{n}", PROBLEM) for n in range(MAX_REFUSED + 1)))
    assert len(run.problems) == MAX_REFUSED


def test_ready_counts_once() -> None:
    pool = Pool()
    run = pool.begin()
    pool.take(run, Named(endpoint("a")), Told(), Told())
    assert len([step for step in pool.steps if isinstance(step, Replace)]) == 1


names = st.sampled_from("abcd")
records = st.one_of(
    st.builds(lambda n, w: Named(endpoint(n, w)), names, st.sampled_from([0.5, 1.0])), st.builds(Gone, names)
)


@given(st.lists(records, max_size=12), st.lists(records, max_size=12), st.lists(st.booleans(), max_size=30))
def test_whatever_two_runs_tell_in_whatever_turns_the_newest_whole_one_is_what_counts_in_the_end(
    first: list[Record], second: list[Record], turns: list[bool]
) -> None:
    def told(done: list[Record]) -> dict[str, EndpointMetadata]:
        found: dict[str, EndpointMetadata] = {}
        for record in done:
            if isinstance(record, Named):
                found[record.item.id] = record.item
            elif isinstance(record, Gone):
                found.pop(record.item_id, None)
        return found

    pool = Pool()
    old = pool.begin()
    pool.take(old, Told())
    new = pool.begin()
    queues: dict[bool, list[Record]] = {False: list(first), True: [*second, Told()]}
    done: list[Record] = []
    for turn in [*turns, *[False] * len(first), *[True] * (len(second) + 1)]:
        if queues[turn]:
            record = queues[turn].pop(0)
            pool.take(new if turn else old, record)
            if not turn and not new.told:
                done.append(record)
            if not new.told:
                assert pool.held == told(done)
    pool.settle()
    assert pool.held == told(second)


@dataclass
class Looking:
    """A run of a plugin that looks at a world now and then, and tells what differs from its last look."""

    pool: Pool
    run: Run[EndpointMetadata]
    seen: set[str] = field(default_factory=set)

    def look(self, world: set[str]) -> None:
        came, gone = sorted(world - self.seen), sorted(self.seen - world)
        self.seen = set(world)
        self.pool.take(self.run, *(Named(endpoint(name)) for name in came), *(Gone(name) for name in gone), Told())


def changes_seen(pool: Pool) -> list[str]:
    """What came and went in a pool, by its steps."""
    found: list[str] = []
    there: set[str] = set()
    for step in pool.steps:
        now = set(there)
        match step:
            case Put(given):
                now = there | {given.id}
            case Drop(endpoint_id):
                now = there - {endpoint_id}
            case Replace(endpoints):
                now = {given.id for given in endpoints}
        found += [f"+{name}" for name in sorted(now - there)] + [f"-{name}" for name in sorted(there - now)]
        there = now
    return found


@given(st.lists(st.sampled_from(["come", "go", "old", "new", "begin"]), max_size=60))
def test_servers_that_come_once_and_go_once_do_so_in_the_pool_whenever_both_runs_look(actions: list[str]) -> None:
    pool, world, came, gone = Pool(), set[str](), 0, 0
    old = Looking(pool, pool.begin())
    old.look(world)
    new: Looking | None = None
    for action in actions:
        if action == "come":
            came += 1
            world.add(f"s{came:03}")
        elif action == "go" and gone < came:
            gone += 1
            world.discard(f"s{gone:03}")
        elif action == "old" and (new is None or not new.run.told):
            old.look(world)
        elif action == "begin" and new is None:
            new = Looking(pool, pool.begin())
        elif action == "new" and new is not None:
            new.look(world)
    last = new if new is not None and new.run.told else old
    last.look(world)
    pool.settle()
    assert pool.ids == world
    seen = changes_seen(pool)
    assert len(seen) == len(set(seen)), seen


def test_negative_control_of_a_take_over_that_forgets_what_was_said_meanwhile() -> None:
    """The property above is about something: without `contested` a server comes twice."""
    pool = Pool()
    old = Looking(pool, pool.begin())
    old.look(set())
    new = Looking(pool, pool.begin())
    seen_by_new: set[str] = set()
    old.look({"a"})
    new.run.contested.clear()
    new.look(seen_by_new)
    new.look({"a"})
    assert changes_seen(pool) == ["+a", "-a", "+a"]
