"""The configured instances of a process, and how `configure` changes them.

`create` is all-or-nothing: with one error nothing has changed, and what was made is closed again.
The table is replaced, never mutated, so a call that has begun sees one state of it.
"""

from __future__ import annotations

from hotbay_sdk import _lazy
from hotbay_sdk._context import Context
from hotbay_sdk._errors import CallFailedError, ParameterError, describe
from hotbay_sdk._plugin import Plugin, Scope
from hotbay_sdk.protocol.calls import InstanceFacts
from hotbay_sdk.protocol.messages import CallError, ErrorCode, Executed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hotbay_sdk._calls import RunningCall
    from hotbay_sdk._context import Host
    from hotbay_sdk._plugin import PluginType


class Instance:
    """One plugin ref, made.

    `facts`: what it says of itself; `scope`: what it may read. `state` says what became of its predecessor's, where one was given; `runs` are the calls that go on until it is closed,
    of which the first of each method has its turn.
    """

    __slots__ = ("context", "facts", "object", "runs", "scope", "spec", "state")

    def __init__(self, spec: PluginType, context: Context, made: object, facts: InstanceFacts) -> None:
        self.spec = spec
        self.context = context
        self.object = made
        self.facts = facts
        # That of the type is shared by all instances that say nothing more.
        self.scope = spec.scope
        if facts.reads or facts.consumes or facts.optional:
            reads, consumes = (
                spec.scope.reads.union(facts.reads),
                spec.scope.consumes.union(facts.consumes, facts.optional),
            )
            self.scope = Scope(spec.name, reads, consumes)
        self.state: str | None = None
        self.runs: list[RunningCall] = []


class Section:
    """The state that a predecessor left for one ref; `whole`: its export came to its end."""

    __slots__ = ("pieces", "version", "whole")

    def __init__(self, version: int) -> None:
        self.version = version
        self.pieces: list[bytes] = []
        self.whole = False


class ConfigureRefusedError(Exception):
    """One plugin ref cannot be made: the path of the bad field and what is wrong with it."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path
        self.message = message


def refused(message: str, code: ErrorCode = ErrorCode.PROTOCOL_VIOLATION) -> CallFailedError:
    """A call that is refused before any of the author's code ran."""
    return CallFailedError(CallError(code, message, executed=Executed.NO))


class Instances:
    """Instances by handle number. `configure` runs in one thread at a time; `find` in any."""

    def __init__(self, *, generation: int, seed: int, log_level: str, host: Host | None) -> None:
        self.plugin = Plugin("none")
        self.state: Mapping[tuple[str, str], Section] | None = None
        """What a predecessor left, by (type, ref name), until the first refs are made."""
        self._host = host
        self._generation = generation
        self._seed = seed
        self._log_level = log_level
        self._table: Mapping[int, Instance] = {}
        self._making: Mapping[int, Instance] = {}

    def number_of(self, handle: object) -> int:
        """The number in a handle `[generation, n]`; STALE_HANDLE for another generation's."""
        if not isinstance(handle, list) or len(handle) != 2 or type(handle[0]) is not int or type(handle[1]) is not int:
            raise refused("a handle is [generation, n]")
        if handle[0] != self._generation:
            raise refused(
                f"handle of generation {handle[0]}, this process is generation {self._generation}",
                ErrorCode.STALE_HANDLE,
            )
        return handle[1]

    def find(self, handle: object, point: str) -> Instance:
        """The instance of a handle, which answers `point`."""
        number = self.number_of(handle)
        instance = self._table.get(number)
        if instance is None:
            raise refused(f"handle {number} is not configured in this process", ErrorCode.STALE_HANDLE)
        if point not in instance.spec.methods:
            raise refused(f"type {instance.spec.name} does not answer {point}")
        return instance

    def known(self, handle: object) -> Instance | None:
        """The instance of a handle, if it is one of this process."""
        if isinstance(handle, list) and len(handle) == 2 and handle[0] == self._generation:
            number = handle[1]
            return self._table.get(number) if type(number) is int else None
        return None

    def all(self) -> list[Instance]:
        """Every configured instance."""
        return list(self._table.values())

    def object_of(self, name: str) -> object:
        """The instance of a ref, the newest of that name; None if there is none."""
        for table in (self._making, self._table):
            for number in sorted(table, reverse=True):
                if table[number].context.name == name:
                    return table[number].object
        return None

    def configure(
        self, create: Sequence[object], drop: Sequence[object], *, settled: Callable[[], None]
    ) -> tuple[dict[str, object], list[Instance]]:
        """Make and drop instances; return the result for the wire and the instances to close.

        `settled` is called when the table was replaced: after it, no call can still see the old one.
        """
        dropped = {self.number_of(handle) for handle in drop}
        wanted = [self._entry(entry) for entry in create]
        made: dict[int, Instance] = {}
        self._making = made
        broken: list[Instance] = []
        errors: list[object] = []
        for number, entry in wanted:
            try:
                if number in made or (number in self._table and number not in dropped):
                    raise ConfigureRefusedError("", f"handle {number} is already in use")
                made[number] = self._make_with_state(entry, broken)
            except ConfigureRefusedError as error:
                errors.append({"handle": [self._generation, number], "path": error.path, "message": error.message})
        self._making = {}
        if errors:
            return {"instances": {}, "errors": errors}, [*broken, *made.values()]
        if made:
            self.state = None
        old = self._table
        self._table = {n: i for n, i in old.items() if n not in dropped} | made
        settled()
        instances = {str(number): instance.facts.to_wire() for number, instance in made.items()}
        result: dict[str, object] = {"instances": instances, "errors": []}
        state = {str(number): instance.state for number, instance in made.items() if instance.state is not None}
        if state:
            result["state"] = state
        return result, [*broken, *(old[n] for n in sorted(dropped) if n in old)]

    def _entry(self, entry: object) -> tuple[int, Mapping[str, object]]:
        """An entry of `create`, with its number: what has another form refuses the call before anything is made."""
        if not isinstance(entry, dict):
            raise refused("an entry of create is a map")
        if not isinstance(entry.get("type"), str) or not isinstance(entry.get("name"), str):
            raise refused("an entry of create has a name and a type")
        return self.number_of(entry.get("handle")), entry

    def clear(self) -> list[Instance]:
        """Drop every instance; return them to be closed."""
        old, self._table = self._table, {}
        return list(old.values())

    def _make_with_state(self, entry: Mapping[str, object], broken: list[Instance]) -> Instance:
        """Make a ref and give it what its predecessor left. One that its import broke joins `broken`, and is made anew."""
        instance = self._make(entry)
        if self.state is None or not instance.spec.declaration.state_versions:
            return instance
        section = self.state.get((instance.spec.name, instance.context.name))
        outcome, spoilt = _lazy.import_state(instance, section)
        if spoilt:
            broken.append(instance)
            instance = self._make(entry)
        instance.state = outcome
        return instance

    def _make(self, entry: Mapping[str, object]) -> Instance:
        type_name, name = entry["type"], entry["name"]
        assert isinstance(type_name, str), "checked before anything was made"
        assert isinstance(name, str), "checked before anything was made"
        spec = self.plugin._find(type_name)
        if spec is None:
            known = [d.type for d in self.plugin.declarations]
            raise ConfigureRefusedError("", f"this package has no type {type_name!a}; it has {', '.join(known)}")
        context = Context(
            name, type_name, seed=self._seed, log_level=self._log_level, host=self._host, beside=self.object_of
        )
        try:
            parameters = _parameters(spec, entry.get("parameters"))
            made = spec.cls(context) if spec.parameters is None else spec.cls(context, parameters)
            facts = self._facts(spec, made)
        except ParameterError as error:
            raise ConfigureRefusedError(_text(error.path), _text(error.message)) from error
        except SystemExit:
            raise
        except BaseException as fault:
            context.logger.fault(fault)
            raise ConfigureRefusedError("", f"{type_name} could not be made: {describe(fault)}") from fault
        if isinstance(facts, ConfigureRefusedError):
            raise facts
        return Instance(spec, context, made, facts)

    def _facts(self, spec: PluginType, made: object) -> InstanceFacts | ConfigureRefusedError:
        """What an instance says of itself."""
        if not spec.wants_hashes and not any(hasattr(made, name) for name in _FACTS):
            return NO_FACTS
        try:
            return _lazy.instance_facts(made, spec)
        except ValueError as error:
            return ConfigureRefusedError("", f"{spec.name}: {error}")


NO_FACTS = InstanceFacts()
_FACTS = ("block_tokens", "reads", "consumes", "optional", "sets_request_headers", "sets_response_headers")
"""Attributes by which instances say something."""


def _text(value: object) -> str:
    """At most 4 KiB of what an author gave as text."""
    return str(value)[:4096].encode("utf-8", "replace").decode()[:4096]


def _parameters(spec: PluginType, raw: object) -> object:
    given: dict[str, object] = {} if raw is None else raw if isinstance(raw, dict) else {"": raw}
    if raw is not None and not isinstance(raw, dict):
        raise ParameterError("", f"parameters are a map, found {type(raw).__name__}")
    if spec.parameters is None:
        for key in given:
            raise ParameterError(key, f"type {spec.name} takes no parameters")
        return None
    if isinstance(spec.parameters, type) and _lazy.is_dataclass_type(spec.parameters):
        return _lazy.dataclass_from(spec.parameters, given)
    return spec.parameters(given)
