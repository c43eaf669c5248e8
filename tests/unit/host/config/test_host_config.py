"""HostConfig: defaults, what each field takes, and problems with their places."""

import contextlib
from pathlib import Path

import pytest
from hotbay.config.addresses import AUTHORITY_FORM, HOST_FORM
from hotbay.config.host_config import host_config_schema, load_host_config
from hotbay.config.host_fields import EndpointUrl, ListenAddress
from hotbay.datalayer.tables.freshness import ATTRIBUTE_PREFIX, FRESHNESS_FIELDS
from hotbay.errors import InputError, Place
from hypothesis import given
from hypothesis import strategies as st

PIN = "a revision such as 7, or a digest such as sha256:<64 hex digits>"
AGING = "waiting, running, kv_usage, lora, cache, or attribute.NAME"
REMOTE = "https://HOST/PATH, or http:// for a loopback address"


def test_empty_text_gives_the_defaults(host):
    config = host("")
    assert config.listen.http == ListenAddress("127.0.0.1", 8080)
    assert (config.limits.body_bytes, config.limits.header_bytes) == (16 << 20, 64 << 10)
    assert (config.supervise.restart.first_s, config.supervise.budget.within_s) == (0.1, 600)
    assert [source.name for source in config.sources] == ["bundled"]
    assert config.isolation.level == "none"
    assert config.scrape.interval_s == 0.05
    freshness = config.freshness
    assert (freshness.stale_after_s, freshness.fields, freshness.policy, freshness.failures) == (2, {}, "unknown", 3)


def test_freshness_is_read_with_limits_by_field(host):
    given = "{stale_after: 500ms, fields: {lora: 10s, attribute.gpu/0.temp: 1m}, policy: ignore, failures: 1000}"
    freshness = host(f"freshness: {given}").freshness
    assert freshness.stale_after_s == 0.5
    assert freshness.fields == {"lora": 10, "attribute.gpu/0.temp": 60}
    assert (freshness.policy, freshness.failures) == ("ignore", 1000)


def test_fields_that_may_have_a_limit_are_those_that_age():
    assert f"{', '.join(FRESHNESS_FIELDS)}, or {ATTRIBUTE_PREFIX}NAME" == AGING


def _state_dir(environment, *, is_root=False):
    config = load_host_config("", file="host.yaml", base_directory=Path("/b"), environment=environment, is_root=is_root)
    return str(config.state_dir)


def test_state_dir_depends_on_user_and_environment():
    assert _state_dir({}, is_root=True) == "/var/lib/hotbay"
    assert _state_dir({"XDG_STATE_HOME": "/x", "HOME": "/h"}) == "/x/hotbay"
    assert _state_dir({"XDG_STATE_HOME": "relative", "HOME": "/h"}) == "/h/.local/state/hotbay"


def test_state_dir_without_any_home_has_to_be_written():
    with pytest.raises(InputError, match=r"state_dir: this field is required\. without it XDG_STATE_HOME or HOME"):
        _state_dir({})


def test_relative_paths_are_relative_to_the_folder_of_the_file(host):
    config = host(
        "state_dir: state\nscheduling: {file: p.yaml}\nsources: [{name: a, directory: ../a}, {name: b, directory: /b}]"
    )
    assert config.state_dir == Path("/etc/hotbay/state")
    assert config.scheduling.file == Path("/etc/hotbay/p.yaml")
    assert [source.directory for source in config.sources] == [Path("/etc/hotbay/../a"), Path("/b")]


def test_empty_directory_stands_for_what_comes_with_the_host(host):
    assert host("sources: [{name: bundled, directory: ''}]").sources[0].directory is None


def test_endpoint_has_a_name_made_from_its_url(host):
    (endpoint,) = host(
        'endpoints: [{url: "http://[::1]:8000", labels: {a: b}, weight: 0.5, state: cordoned}]'
    ).endpoints
    assert endpoint.url == EndpointUrl("http", "::1", 8000)
    assert endpoint.effective_name == "--1-8000"
    assert (endpoint.labels, endpoint.weight, endpoint.state) == ({"a": "b"}, 0.5, "cordoned")


def test_endpoint_says_where_its_metrics_are_and_on_which_machine_it_runs(host):
    (one, other) = host(
        "endpoints: [{url: 'http://a', metrics_host: '[fd00::1]:9000', node_address: 'fd00::2'}, {url: 'http://b'}]"
    ).endpoints
    assert (one.metrics_host, one.node_address) == ("[fd00::1]:9000", "fd00::2")
    assert (other.metrics_host, other.node_address) == (None, None)


def test_port_of_an_endpoint_is_80_unless_written(host):
    assert host("endpoints: [{url: 'http://server'}]").endpoints[0].url.port == 80


@pytest.mark.parametrize(
    ("written", "address"),
    [("127.0.0.1:0", ("127.0.0.1", 0)), ("'[::]:9'", ("::", 9)), ("localhost:80", ("localhost", 80))],
)
def test_listen_takes_host_and_port(host, written, address):
    assert host(f"listen: {{http: {written}}}").listen.http == ListenAddress(*address)


def test_addresses_are_written_as_they_are_read(host):
    config = host("listen: {http: '[::1]:9'}\nendpoints: [{url: 'http://a:1'}]")
    assert (str(config.listen.http), str(config.endpoints[0].url)) == ("[::1]:9", "http://a:1")


def test_bindings_and_packages_are_read(host):
    config = host(
        "bindings: {q: {on_failure: fail_closed, neutral: 1, deadline: 50ms}}\n"
        "packages: [{id: standard, start: eager, isolation: none, hello: 1s, ready: 2s}]\n"
        "types: {queue-scorer: standard}\n"
    )
    assert (config.bindings["q"].on_failure, config.bindings["q"].neutral, config.bindings["q"].deadline_s) == (
        "fail_closed",
        1.0,
        0.05,
    )
    assert (config.packages[0].hello_s, config.packages[0].ready_s) == (1, 2)
    assert config.types == {"queue-scorer": "standard"}


def test_c08_null_is_an_absent_field(host):
    text = "endpoints:\nlimits:\nlisten: {http: }\npackages: [{id: a, pin: null, isolation: null}]\nworld: null\n"
    assert host(text).endpoints == ()


def test_values_are_frozen(host):
    with pytest.raises(ValueError, match="frozen"):
        host("").limits.body_bytes = 1


def test_equal_contents_are_equal_wherever_they_stand(host):
    assert host("reload: watch\nlogging: {level: info}") == host("# moved\n\nlogging:\n  level: info\nreload: watch")
    assert host("logging: {level: info}") != host("logging: {level: debug}")


def test_place_of_a_field_is_kept_for_later_problems(host):
    config = host("bindings:\n  my-queue: {deadline: 1s}\n")
    assert config.place("bindings", "my-queue") == Place("host.yaml", 2, 3)


@pytest.mark.parametrize(
    ("text", "path", "guess"),
    [
        ("endpoint: []", "endpoint", "endpoints"),
        ("listen: {htpp: x}", "listen.htpp", "http"),
        ("endpoints: [{url: 'http://a', wieght: 5}]", "endpoints[0].wieght", "weight"),
        ("sources: [{name: a, director: x}]", "sources[0].director", "directory"),
        ("packages: [{id: a, redy: 1s}]", "packages[0].redy", "ready"),
        ("bindings: {q: {dedline: 1s}}", "bindings.q.dedline", "deadline"),
        ("supervise: {restart: {frist: 1s}}", "supervise.restart.frist", "first"),
        ("supervise: {buget: {}}", "supervise.buget", "budget"),
        ("Reload: watch", "Reload", "reload"),
    ],
)
def test_c15_typo_is_named_with_path_line_and_nearest_name(host_problems, text, path, guess):
    problem = next(p for p in host_problems(f"kind: HostConfig\n{text}") if p.code == "UNKNOWN_FIELD")
    assert (problem.path, problem.place.line) == (path, 2)
    assert repr(guess) in problem.hint


@pytest.mark.parametrize(
    "text",
    [
        "tenants: []",
        "listen: {http: 'unix:a'}",
        "isolation: {level: strict}",
        "isolation: {level: standard}",
        "isolation: {uid_range: 1-2}",
        "trust: {unsigned: refuse}",
        "trust: {publishers: []}",
        "sources: [{name: bundled, dev: false}]",
        "packages: [{id: a, replicas: 2}]",
        "packages: [{id: a, tenant: t}]",
        "world: {root: default}",
        "packages: [{id: a, isolation: strict}]",
        "logging: {levels: {}}",
        "endpoints: [{url: 'https://a'}]",
    ],
)
def test_what_this_release_does_not_carry_out_is_refused_as_that(host_problems, text):
    (problem,) = host_problems(text)
    assert problem.code == "NOT_SUPPORTED"
    assert problem.hint


@pytest.mark.parametrize(
    ("text", "expected", "found"),
    [
        ("listen: {http: 8080}", "HOST:PORT such as 127.0.0.1:8080", "the number 8080"),
        ("listen: {http: '1.2.3.4:99999'}", "HOST:PORT such as 127.0.0.1:8080", "the text '1.2.3.4:99999'"),
        ("limits: {body: 16}", "a size such as 16MiB or 64KiB", "the number 16"),
        ("limits: {body: 0}", "greater than 0", "the number 0"),
        ("supervise: {stable: 60}", "a duration such as 30s, 250ms or 5m", "the number 60"),
        ("supervise: {max_parallel_starts: 1.5}", "an integer", "the number 1.5"),
        ("supervise: {max_parallel_starts: yes}", "an integer", "the text 'yes'"),
        ("sources: [{name: bundled, dev: yes}]", "true or false", "the text 'yes'"),
        ("endpoints: {}", "a list", "a mapping"),
        ("endpoints: [7]", "a mapping", "the number 7"),
        ("endpoints: [{url: 'http://a/v1'}]", "http://HOST:PORT", "the text 'http://a/v1'"),
        ("endpoints: [{url: 'http://a', metrics_host: 'a:0'}]", AUTHORITY_FORM, "the text 'a:0'"),
        ("endpoints: [{url: 'http://a', node_address: '[::1]'}]", HOST_FORM, "the text '[::1]'"),
        ("endpoints: [{url: 'http://u@a'}]", "http://HOST:PORT", "the text 'http://u@a'"),
        ("endpoints: [{url: 'http://a', weight: -1}]", "greater than or equal to 0", "the number -1"),
        ("endpoints: [{url: 'http://a', weight: NaN}]", "a number", "the text 'NaN'"),
        ("endpoints: [{url: 'http://a', weight: .inf}]", "a finite number", "'.inf'"),
        ("endpoints: [{url: 'http://a', state: up}]", "'active' or 'cordoned'", "the text 'up'"),
        ("bindings: {a: {neutral: 1.5}}", "less than or equal to 1", "the number 1.5"),
        ("scrape: {interval: 10ms}", "greater than or equal to 0.05", "the number 0.01"),
        ("freshness: {stale_after: 0s}", "greater than 0", "the number 0.0"),
        ("freshness: {fields: {queue: 1s}}", f"one of {AGING}", "the text 'queue'"),
        ("freshness: {fields: {attribute.: 1s}}", f"one of {AGING}", "the text 'attribute.'"),
        ("freshness: {fields: {lora: 0s}}", "greater than 0", "the number 0.0"),
        ("freshness: {policy: saturated}", "'unknown' or 'ignore'", "the text 'saturated'"),
        ("freshness: {failures: 0}", "greater than or equal to 1", "the number 0"),
        ("freshness: {failures: 1001}", "less than or equal to 1000", "the number 1001"),
        ("state_dir: ~/x", "a path", "the text '~/x'"),
        ("packages: [{id: a/b}]", "a name of letters, digits, '.', '_' and '-'", "the text 'a/b'"),
        ("kind: EndpointPickerConfig", "'HostConfig'", "the text 'EndpointPickerConfig'"),
        ("listen: {http: localhost}", "HOST:PORT such as 127.0.0.1:8080", "the text 'localhost'"),
        ("limits: {body: 1mb}", "a size such as 16MiB or 64KiB", "the text '1mb'"),
        ("endpoints: [{url: 8000}]", "http://HOST:PORT", "the number 8000"),
        ("endpoints: [{url: 'http://[::1'}]", "http://HOST:PORT", "the text 'http://[::1'"),
        ("state_dir: ''", "a path", "the text ''"),
        ("listen: {admin: '127.0.0.1:1'}", "unix:PATH such as unix:admin.sock", "the text '127.0.0.1:1'"),
        ("world: {path: ../w}", "a name of letters, digits, '.', '_' and '-'", "the text '../w'"),
        ("swap: {shadow: {sample: 0}}", "greater than 0", "the number 0"),
        ("swap: {canary: {share: 1}}", "less than 1", "the number 1"),
        ("packages: [{id: a, pin: 1.2.0}]", PIN, "the text '1.2.0'"),
        ("packages: [{id: a, pin: -1}]", PIN, "the number -1"),
        ("packages: [{id: a, standby: 2}]", "less than or equal to 1", "the number 2"),
        ("limits: {fetch_concurrency: 65}", "less than or equal to 64", "the number 65"),
        ("sources: [{name: a, http: 'http://b/c'}]", REMOTE, "the text 'http://b/c'"),
        ("sources: [{name: a, http: 'https://u:p@b/c'}]", REMOTE, "the text 'https://u:p@b/c'"),
        ("[]", "a mapping", "a list"),
    ],
)
def test_wrong_value_is_refused_with_expected_and_found(host_problems, text, expected, found):
    (problem,) = host_problems(text)
    assert (problem.code, problem.expected, problem.found) == ("CONFIG_INVALID", expected, found)
    assert problem.place.line == 1


@pytest.mark.parametrize("text", ["endpoints: [{url: 'http://a', name: 5}]", "types: {a: true}", "packages: [{id: 1}]"])
def test_c04_number_in_place_of_a_name_asks_for_quotes(host_problems, text):
    (problem,) = host_problems(text)
    assert (problem.expected, problem.hint) == ("a text", "put it in quotes if a text is meant")


@pytest.mark.parametrize(
    "text",
    [
        "endpoints:\n- url: http://a:1\n- url: http://a:1\n",
        "sources:\n- {name: a, directory: x}\n- {name: a, directory: y}\n",
        "packages:\n- id: a\n- id: a\n",
    ],
)
def test_name_given_twice_is_refused_with_both_lines(host_problems, text):
    (problem,) = host_problems(text)
    assert (problem.code, problem.place.line) == ("DUPLICATE_NAME", 3)
    assert "lines 2 and 3" in problem.message


@pytest.mark.parametrize("text", ["scheduling: {file: a, text: b}", "sources: [{name: a}]"])
def test_fields_that_contradict_each_other_are_refused(host_problems, text):
    assert [p.code for p in host_problems(text)] == ["CONFIG_INVALID"]


def test_all_problems_of_all_kinds_come_at_once(host_problems):
    problems = host_problems(
        "reload: watch\nreload: watch\ntenants: []\nlimitz: {}\nscrape: {interval: 1}\nlisten: {x: 1}\n"
    )
    assert [(p.place.line, p.code) for p in problems] == [
        (2, "DUPLICATE_KEY"),
        (3, "NOT_SUPPORTED"),
        (4, "UNKNOWN_FIELD"),
        (5, "CONFIG_INVALID"),
        (6, "UNKNOWN_FIELD"),
    ]


def test_schema_names_fields_as_they_are_written():
    schema = host_config_schema()
    assert {"apiVersion", "listen", "bindings"} <= set(schema["properties"])
    assert schema["additionalProperties"] is False
    assert "required" not in schema


_KEYS = st.sampled_from(["listen", "http", "endpoints", "url", "bindings", "limits", "body", "name", "scrape", "x"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["http://a", "1s", "a:1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=15,
)


@given(st.dictionaries(_KEYS, _VALUES, max_size=4))
def test_no_content_raises_anything_but_input_error(value):
    text = str(value).replace("None", "null")
    with contextlib.suppress(InputError):
        load_host_config(text, file="f.yaml", base_directory=Path("/b"), environment={}, is_root=True)


@pytest.mark.parametrize("name", ["a", "a.b-c.d.", "x_1.internal", "127.0.0.1", "a" * 63 + ".b", "1a"])
def test_host_names_that_resolvers_take(host, name):
    (entry,) = host(f"endpoints: [{{url: 'http://{name}:80'}}]").endpoints
    assert entry.url.host == name


@pytest.mark.parametrize(
    "name", ["a..b", "a" * 64, ".a", "-a", "a-", "127.0.0.999", "1.2.3", "[::g]", "[1::2::3]", "[fe80::1%1]"]
)
def test_host_names_that_no_resolver_takes_are_refused(host_problems, name):
    (problem,) = host_problems(f"endpoints: [{{url: 'http://{name}:80'}}]")
    assert (problem.code, problem.path) == ("CONFIG_INVALID", "endpoints[0].url")
    (problem,) = host_problems(f"listen: {{http: '{name}:80'}}")
    assert problem.path == "listen.http"


@pytest.mark.parametrize(("weight", "is_good"), [(0, True), (1, True), (1.01, False), (-0.01, False)])
def test_weight_of_an_endpoint_is_a_share(host, host_problems, weight, is_good):
    text = f"endpoints: [{{url: 'http://a:80', weight: {weight}}}]"
    if is_good:
        assert host(text).endpoints[0].weight == weight
    else:
        assert host_problems(text)[0].path == "endpoints[0].weight"


def test_c26_limit_that_bounds_nothing_is_refused(host_problems):
    (problem,) = host_problems("packages: [{id: a, concurrency: 4}]")
    assert (problem.code, problem.path) == ("NOT_SUPPORTED", "packages[0].concurrency")


# -- sources and swaps ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{name: x}", "needs one of directory, oci_layout, http, registry, extension"),
        ("{name: x, directory: x, registry: r.example/n}", "`directory` and `registry` exclude each other"),
        ("{name: x, directory: x, options: {a: b}}", "`options` are for an `extension`"),
        ("{name: x, directory: x, ca_file: c}", "`ca_file` is for a source that is `http` or a `registry`"),
        ("{name: x, directory: x, auth: {token_file: t}}", "`auth` is for a source that is `http` or a `registry`"),
        ("{name: x, http: 'https://a/b', auth: {username: u}}", "`username` and `password_file` go together"),
        (
            "{name: x, http: 'https://a/b', auth: {username: u, password_file: p, token_file: t}}",
            "`token_file` and `username` exclude each other",
        ),
        ("{name: x, http: 'https://a/b', copy: false}", "`copy: false` needs a `directory` or an `oci_layout`"),
    ],
)
def test_fields_of_a_source_that_do_not_go_together_are_refused(host_problems, source, message):
    (problem,) = host_problems(f"sources: [{source}]")
    assert problem.code == "CONFIG_INVALID"
    assert message in problem.message


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("{name: bundled}", "bundled"),
        ("{name: a, directory: d}", "directory"),
        ("{name: a, oci_layout: d}", "oci_layout"),
        ("{name: a, http: 'http://127.0.0.1:1/x'}", "http"),
        ("{name: a, http: 'https://a.example/x', auth: {username: u, password_file: p}, ca_file: c}", "http"),
        ("{name: a, registry: 'r.example:5000/ns/name:v1'}", "registry"),
        ("{name: a, extension: shelf, options: {path: /x}}", "extension"),
    ],
)
def test_a_source_has_one_place(host, source, kind):
    assert host(f"sources: [{source}]").sources[0].place_kind == kind


def test_steps_of_a_swap_have_the_numbers_of_the_table_and_can_be_off(host):
    swap = host("").swap
    assert (swap.mode, swap.approve) == ("overlap", "auto")
    assert (swap.shadow.sample, swap.shadow.calls, swap.shadow.for_s, swap.shadow.max_difference) == (0.1, 200, 2, None)
    assert (swap.canary.share, swap.canary.for_s, swap.canary.min_requests) == (0.1, 10, 100)
    assert (swap.guard.for_s, swap.guard.calls) == (30, 200)
    off = host("swap: {shadow: off, canary: off, guard: off}").swap
    assert (off.shadow, off.canary, off.guard) == (None, None, None)
    assert host("swap: {guard: 5s}").swap.guard.for_s == 5


@pytest.mark.parametrize("pin", ["7", f"'sha256:{'a' * 64}'"])
def test_a_package_can_be_pinned_by_revision_or_digest(host, pin):
    assert str(host(f"packages: [{{id: a, pin: {pin}}}]").packages[0].pin) == pin.strip("'")


def test_one_package_may_have_entries_of_several_instance_keys(host, host_problems):
    assert [p.key for p in host("packages: [{id: a}, {id: a, key: b}]").packages] == ["", "b"]
    (problem,) = host_problems("packages: [{id: a, key: b}, {id: a, key: b}]")
    assert (problem.code, problem.path) == ("DUPLICATE_NAME", "packages[1]")


def test_hb20_a_platform_is_listed_once(host, host_problems):
    assert [h.interpreter for h in host("hosts: [{platform: python-cp311-linux-x86_64}]").hosts] == [None]
    (problem,) = host_problems("hosts: [{platform: a}, {platform: a}]")
    assert (problem.code, problem.path) == ("DUPLICATE_NAME", "hosts[1]")
