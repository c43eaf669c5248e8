"""What a package provides: its plugin types and what each declares.

A declaration is checked when the class is defined, so that a package with a bad one never gets READY.
"""

from __future__ import annotations

from hotbay_sdk import _lazy
from hotbay_sdk._points import DATA_POINTS, POINT_ORDER
from hotbay_sdk.protocol.calls import (
    ANY_COLUMN,
    ATTRIBUTE_PREFIX,
    COLUMN_FORMATS,
    HEADER_READ,
    PROMPT_HASHES,
    REQUEST_ATTRIBUTE_READ,
    REQUEST_FIELDS,
    RESPONSE_HEADER_READ,
    SIDE_TABLES,
    WILDCARD_READS,
    column_name,
)
from hotbay_sdk.protocol.handshake import DRAINED, MAX_CONCURRENCY, NO_DATA, TypeDeclaration, is_attribute_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypeVar

    Kind = TypeVar("Kind", bound=type)
    ParameterParser = Callable[[Mapping[str, object]], object]

SCOPES = ("row", "request", "text")
_CO_COROUTINE = 0x80
"""`inspect.CO_COROUTINE`, without the cost of importing inspect."""


class Scope:
    """What may be read by one type, or by one instance that reads more: wildcards are no names, so they are left out.

    `tables`: the side tables among `reads`. `consumes`: data columns, also those that may be missing.
    """

    __slots__ = ("consumes", "reads", "tables", "type_name")

    def __init__(self, type_name: str, reads: Iterable[str], consumes: Iterable[str]) -> None:
        self.type_name = type_name
        self.reads = frozenset(reads) - WILDCARD_READS
        self.tables = self.reads.intersection(SIDE_TABLES)
        self.consumes = frozenset(consumes) - {ANY_COLUMN}


class PluginType:
    """One plugin type as declared. `methods` maps a point to the method that answers it.

    `wants_hashes`: instances must say in which blocks prompts are hashed for them.
    """

    __slots__ = (
        "async_methods",
        "cls",
        "declaration",
        "methods",
        "name",
        "parameters",
        "produces",
        "scope",
        "wants_hashes",
    )

    def __init__(
        self,
        cls: type,
        declaration: TypeDeclaration,
        methods: Mapping[str, tuple[str, ...]],
        produces: Mapping[str, str],
        parameters: type | ParameterParser | None,
    ) -> None:
        self.cls = cls
        self.declaration = declaration
        self.methods = methods
        self.produces = produces
        self.parameters = parameters
        self.name = declaration.type
        self.scope = Scope(self.name, declaration.reads, (*declaration.consumes, *declaration.optional))
        self.wants_hashes = PROMPT_HASHES in self.scope.reads
        names = {name for group in methods.values() for name in group} | {"check_ready", "close", "withdrawn"}
        self.async_methods = frozenset(name for name in names if _is_async(getattr(cls, name, None)))


class Plugin:
    """A package's plugin types; the object that the package's entry point `module:attribute` names.

    Args:
        name: the plugin's id, for error texts.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._types: dict[str, PluginType] = {}

    def type(
        self,
        name: str,
        *,
        reads: Iterable[str] = (),
        consumes: Iterable[str] = (),
        produces: Mapping[str, str] | None = None,
        parameters: type | ParameterParser | None = None,
        rowwise: bool = False,
        concurrency: int = 1,
        state_versions: Iterable[int] = (),
        needs_restart: bool = False,
        payload: str = "",
        families: Iterable[str] = (),
        attributes: Mapping[str, str] | None = None,
        default_source: str = "",
        interval_s: float = 0.0,
        optional: Iterable[str] = (),
        drained: str = DRAINED[0],
        claims: Iterable[str] = (),
        every_chunk: bool = False,
    ) -> Callable[[Kind], Kind]:
        """Declare a class as the plugin type `name`.

        The class is made as `Class(context, parameters)`, or `Class(context)` if it declares none.

        Args:
            name: the type that operators write, unique in the package.
            reads: endpoint columns, side tables and request fields that cross to the type, such as `endpoint.waiting`,
                `attribute.queue_time_p50` of an extractor, `endpoint.labels`, `request.prompt`,
                `request.headers[x-session]`, `request.attributes[tenant]` and, of what is told of responses,
                `response.headers[x-cost]`. Where names depend on parameters, `request.headers[*]`, `request.attributes[*]`,
                `response.headers[*]` or `attribute.*` stands here, and the instance's attribute `reads` lists them.
            consumes: data columns of other types that cross to it, as `Key.field`, or as `Key/producer.field`
                of one ref that makes it. `"*"`: the instance's attributes `consumes` and `optional` list more.
            produces: data columns that it makes, each with its scope: `"row"` (one number for each
                endpoint), `"request"` (one number) or `"text"` (one text or None).
            parameters: a dataclass, filled strictly from the operator's map, or a function that gets
                the map and returns what `__init__` gets; it raises `ParameterError`. None: the
                operator's map must be empty.
            rowwise: every endpoint's score depends on that endpoint alone, so the host may evaluate
                it once for many requests.
            concurrency: calls to the type that may overlap, 1 to 64. With 1, the default and the fastest, calls
                run one after the other. With more they run in so many threads of their own, beside those of
                other types, and the class guards what it shares; order among them is not kept.
            state_versions: forms of state that the type hands to the next version of the package, from 1
                up. It then defines `export_state(version)`, which returns bytes or an iterable of bytes, and
                `import_state(version, pieces)`, which gets an iterator over the same bytes, cut anyhow,
                before its first call. Calls never run within one step of the iterable of a type with
                concurrency 1, but do run between two. An export that raises, or an import that
                does, is a cold start: the import's instance is made again without state.
            needs_restart: other parameters need a new process; without it, `configure` makes the ref
                anew in the running one.
            payload: what an `Extractor` is given: `metrics`, `models`, `json`, `text` or `bytes`; what an
                `EventExtractor` or a `NotificationSource` is given events of: `endpoint` or
                `object:GROUP/VERSION/KIND`, the core group being empty, as in `object:/v1/Pod`; what a `WatchSource` (an
                object's kind) or a `PollingSource` (as of an `Extractor`) brings.
            families: of an `Extractor` with payload `metrics`, the samples that cross, by their names on the page: a histogram's are
                `NAME_bucket`, `NAME_sum` and `NAME_count`.
            attributes: name → kind of what an extractor may return: `f32` or `i64`, which become columns that scorers
                read as `attribute.NAME`, or `value`, which does not.
            default_source: type of the source that feeds an `Extractor` which the operator binds to none.
            interval_s: how often a `PollingSource` is asked for each endpoint, 0.05 to 3600 seconds; 1 where nothing is said.
            optional: data columns as in `consumes` that may be missing: then they read as NaN, or as an empty text.
            drained: what it means when this filter leaves no candidate: `"busy"` (the client gets 429) or
                `"ineligible"`, none of them may serve the request (503).
            claims: path suffixes of a `Parser`, such as `/v1/completions`; the longest one wins. Without any it is given what no
                other parser claims.
            every_chunk: a `ResponseBodyProcessor` is told of chunks too, and not of the end alone.

        Returns:
            A decorator that returns the class unchanged.

        Raises:
            ValueError: the declaration cannot be used; the text names the nearest known name.
            TypeError: the class answers no extension point.
        """

        def declare(cls: Kind) -> Kind:
            where = f"plugin {self.name}, type {name}"
            if not name or name in self._types:
                raise ValueError(f"{where}: a type needs a name of its own")
            self._types[name] = _declared(
                cls, where, name=name, reads=reads, consumes=consumes, produces=produces, parameters=parameters,
                rowwise=rowwise, concurrency=concurrency, state_versions=state_versions, needs_restart=needs_restart,
                data=(payload, families, attributes, default_source, interval_s),
                request=(optional, drained, claims, every_chunk),
            )  # fmt: skip
            return cls

        return declare

    @property
    def declarations(self) -> tuple[TypeDeclaration, ...]:
        """What READY says of the types, in the order of their definition."""
        return tuple(t.declaration for t in self._types.values())

    def _find(self, name: str) -> PluginType | None:
        return self._types.get(name)


def _declared(
    cls: type,
    where: str,
    *,
    name: str,
    reads: Iterable[str],
    consumes: Iterable[str],
    produces: Mapping[str, str] | None,
    parameters: type | ParameterParser | None,
    rowwise: bool,
    concurrency: int,
    state_versions: Iterable[int],
    needs_restart: bool,
    data: tuple[str, Iterable[str], Mapping[str, str] | None, str, float],
    request: tuple[Iterable[str], str, Iterable[str], bool],
) -> PluginType:
    """The type as `Plugin.type` describes it, checked; raises as it does."""
    if not 1 <= concurrency <= MAX_CONCURRENCY:
        raise ValueError(f"{where}: concurrency {concurrency}, expected 1 to {MAX_CONCURRENCY}")
    made = dict(produces or {})
    methods = _methods_of(cls, where)
    optional, drained, claims, every_chunk = request
    declaration = TypeDeclaration(
        type=name,
        points=tuple(dict.fromkeys(_SPELLING.get(point, point) for point in methods)),
        reads=_checked_reads(reads, where),
        consumes=_checked_columns(consumes, where, "consumes"),
        produces=_checked_columns(made, where, "produces"),
        optional=_checked_columns(optional, where, "optional"),
        drained=drained,
        claims=_lazy.checked_claims(where, claims) if claims else (),
        every_chunk=every_chunk,
        rowwise=rowwise,
        concurrency=concurrency,
        state_versions=_checked_versions(cls, tuple(state_versions), where),
        needs_restart=needs_restart,
        # A module more is imported only for those that need it: starts are measured.
        data=_lazy.data_declaration(where, cls, methods, *data)
        if any(data) or DATA_POINTS & methods.keys()
        else NO_DATA,
    )
    _check_produces(made, methods, where)
    _check_belongs(declaration, methods, where)
    return PluginType(cls, declaration, methods, made, parameters)


_SPELLING = {"event_extract": "extract"}
"""Points that READY spells otherwise."""


def _is_async(method: object) -> bool:
    code = getattr(method, "__code__", None)
    return bool(getattr(code, "co_flags", 0) & _CO_COROUTINE)


_STATE_METHODS = ("export_state", "import_state")


def _checked_versions(cls: type, versions: tuple[int, ...], where: str) -> tuple[int, ...]:
    for version in versions:
        if type(version) is not int or version < 1:
            raise ValueError(f"{where}: state version {version!r}, expected whole numbers from 1 up")
    defined = [name for name in _STATE_METHODS if callable(getattr(cls, name, None))]
    if versions and len(defined) < len(_STATE_METHODS):
        raise TypeError(f"{where}: a type with state_versions defines {' and '.join(_STATE_METHODS)}")
    if defined and not versions:
        raise TypeError(f"{where}: {cls.__name__} defines {defined[0]}, name its state_versions")
    for name in defined:
        if _is_async(getattr(cls, name)):
            raise TypeError(f"{where}: {name} is no async method")
    return versions


def _methods_of(cls: type, where: str) -> dict[str, tuple[str, ...]]:
    """Point → methods, in the order of the points."""
    found: dict[str, tuple[str, ...]] = {}
    for base in cls.__mro__:
        point, names = vars(base).get("_hotbay_point", ("", ()))
        if not point:
            continue
        defined = tuple(n for n in names if getattr(cls, n) is not getattr(base, n))
        if not defined:
            raise TypeError(f"{where}: {cls.__name__} is a {base.__name__} without {' or '.join(reversed(names))}")
        if point == "profile_handler" and len(defined) < len(names):
            raise TypeError(f"{where}: a ProfileHandler defines both pick and process")
        found[point] = defined if point == "profile_handler" else defined[:1]
    if not found:
        raise TypeError(f"{where}: {cls.__name__} derives from none of {', '.join(_lazy.class_names())}")
    for group, advice in _EXCLUSIVE:
        if len(group & found.keys()) > 1:
            raise TypeError(f"{where}: {advice}; make them two types")
    return {point: found[point] for point in POINT_ORDER if point in found}


_EXCLUSIVE: tuple[tuple[frozenset[str], str], ...] = (
    (
        frozenset({"pick", "profile_handler", "fairness"}),
        "a Picker, a ProfileHandler and a FairnessPolicy all define pick",
    ),
    (frozenset({"extract", "event_extract"}), "an Extractor and an EventExtractor both define extract"),
    (frozenset({"watch", "source"}), "a WatchSource brings events, and a NotificationSource is given them"),
    (frozenset({"ordering", "eviction_order"}), "an OrderingPolicy and an EvictionOrderingPolicy both define less"),
)
"""Points of which a type answers one at most, and why."""


def _checked_reads(reads: Iterable[str], where: str) -> tuple[str, ...]:
    if isinstance(reads, str):
        raise ValueError(f'{where}: reads is a list, write ["{reads}"]')
    checked: list[str] = []
    for name in reads:
        spelled = spelled_read(name)
        if spelled is None:
            known = [*COLUMN_FORMATS, *SIDE_TABLES, *REQUEST_FIELDS, "attribute.NAME"]
            known += [f"{prefix}NAME]" for prefix in _BRACKETED]
            likely = _lazy.nearest(name, known)
            hint = f", did you mean {likely}?" if likely else f"; known are {', '.join(sorted(known))}"
            raise ValueError(f"{where}: reads names {name}, which does not exist{hint}")
        checked.append(spelled)
    return tuple(dict.fromkeys(checked))


_BRACKETED = (HEADER_READ, REQUEST_ATTRIBUTE_READ, RESPONSE_HEADER_READ)


def spelled_read(name: str) -> str | None:
    """A name that may stand in `reads`, as the wire has it: headers in lower case. None for no such name."""
    for prefix in _BRACKETED:
        if name.startswith(prefix) and name.endswith("]") and len(name) > len(prefix) + 1:
            return name if prefix == REQUEST_ATTRIBUTE_READ else name.lower()
    known = name in COLUMN_FORMATS or name in SIDE_TABLES or name in REQUEST_FIELDS or name in WILDCARD_READS
    return name if known or _is_attribute(name) else None


def _is_attribute(name: str) -> bool:
    return name.startswith(ATTRIBUTE_PREFIX) and is_attribute_name(name[len(ATTRIBUTE_PREFIX) :])


def _checked_columns(names: Iterable[str], where: str, what: str) -> tuple[str, ...]:
    if isinstance(names, str):
        raise ValueError(f'{where}: {what} is a list, write ["{names}"]')
    columns = tuple(dict.fromkeys(names))
    for name in columns:
        if name == ANY_COLUMN and what == "consumes":
            continue
        found = column_name(name)
        if found is None or (found.producer and what == "produces"):
            form = "Key.field" if what == "produces" else "Key.field or Key/producer.field"
            raise ValueError(f"{where}: {what} names {name}, a data column is named {form}")
    return columns


def _check_produces(produces: Mapping[str, str], methods: Mapping[str, object], where: str) -> None:
    for name, scope in produces.items():
        if scope not in SCOPES:
            raise ValueError(f'{where}: {name} has scope {scope!r}, expected "row", "request" or "text"')
    if ("produce" in methods) is not bool(produces):
        raise ValueError(f"{where}: a DataProducer, and nothing else, names the columns that it makes in produces")


def _check_belongs(declaration: TypeDeclaration, methods: Mapping[str, object], where: str) -> None:
    """What only types of one point say."""
    if declaration.drained not in DRAINED:
        raise ValueError(f'{where}: drained is "busy" or "ineligible", found {declaration.drained!r}')
    for said, point, text in (
        (declaration.drained != DRAINED[0], "filter", "drained is a Filter's"),
        (declaration.claims, "parse", "claims are a Parser's"),
        (declaration.every_chunk, "response_body", "every_chunk is a ResponseBodyProcessor's"),
    ):
        if said and point not in methods:
            raise ValueError(f"{where}: {text}")
