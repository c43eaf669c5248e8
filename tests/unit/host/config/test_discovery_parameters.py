"""Parameters of the host's own discoveries that are no file: what is read, and problems with their places."""

import pytest
from hotbay.config.data_parameters import Tls
from hotbay.config.discovery_fields import Credentials
from hotbay.config.discovery_parameters import (
    DISCOVERIES,
    DnsDiscovery,
    HttpSdDiscovery,
    read_dns_discovery,
    read_http_sd_discovery,
    read_static_discovery,
)
from hotbay.errors import InputError

ONE = "plugins:\n- {name: d, type: any, parameters: %s}\n"


def _read(read, picker, parameters):
    config = picker(ONE % parameters)
    return read(config, config.plugins[0])


def _paths(read, picker, parameters):
    with pytest.raises(InputError) as caught:
        _read(read, picker, parameters)
    assert {(p.place.file, p.place.line) for p in caught.value.problems} == {("picker.yaml", 4)}
    return [p.path.removeprefix("plugins[0].parameters").removeprefix(".") for p in caught.value.problems]


def test_the_discoveries_of_the_host_have_their_names():
    assert set(DISCOVERIES) == {"dns-discovery", "file-discovery", "http-sd-discovery", "static-discovery"}


def test_static_discovery_keeps_its_entries_with_their_place(picker):
    read = _read(read_static_discovery, picker, "{endpoints: [{name: a}]}")
    assert (read.entries, read.at) == ([{"name": "a"}], ("plugins", 0, "parameters"))
    assert read == _read(read_static_discovery, picker, "{endpoints:  [{name: a}]}")
    assert read != _read(read_static_discovery, picker, "{endpoints: [{name: b}]}")


@pytest.mark.parametrize("parameters", ["{}", "{endpoints: {}}", "{endpoints: a}"])
def test_static_discovery_is_strict(picker, parameters):
    assert _paths(read_static_discovery, picker, parameters) == ["endpoints"]


def test_dns_discovery_is_read(picker):
    assert _read(read_dns_discovery, picker, "{names: [gpu.example.], port: '8000'}") == DnsDiscovery(
        ("gpu.example.",), port=8000
    )
    written = """{names: [_llm._tcp.example, b], type: SRV, servers: [10.0.0.10, '[fd00::10]:5353', 'fd00::11'],
      minInterval: 1s, maxInterval: 5m, timeout: 500ms, onEmpty: clear, namespace: pool, labels: {b: c, a: b}}"""
    assert _read(read_dns_discovery, picker, written) == DnsDiscovery(
        ("_llm._tcp.example", "b"),
        type="SRV",
        servers=(("10.0.0.10", 53), ("fd00::10", 5353), ("fd00::11", 53)),
        shortest_s=1.0,
        longest_s=300.0,
        timeout_s=0.5,
        on_empty="clear",
        namespace="pool",
        labels=(("a", "b"), ("b", "c")),
    )


def test_the_longest_interval_follows_a_shortest_one_that_is_longer(picker):
    read = _read(read_dns_discovery, picker, "{names: [a], port: 1, minInterval: 2m}")
    assert (read.shortest_s, read.longest_s) == (120.0, 120.0)


def test_dns_discovery_takes_as_many_names_as_it_may(picker):
    names = ", ".join(f"n{number}" for number in range(64))
    assert len(_read(read_dns_discovery, picker, f"{{names: [{names}], port: 1}}").names) == 64
    assert set(_paths(read_dns_discovery, picker, f"{{names: [{names}, more], port: 1}}")) == {"names"}


@pytest.mark.parametrize(
    ("parameters", "paths"),
    [
        ("{port: 1}", ["names"]),
        ("{names: [], port: 1}", ["names"]),
        ("{names: ['a b'], port: 1}", ["names[0]"]),
        ("{names: [a..b], port: 1}", ["names[0]"]),
        ("{names: [10.0.0.1], port: 1}", ["names[0]"]),
        ("{names: [a]}", ["port"]),
        ("{names: [a], port: 0}", ["port"]),
        ("{names: [a], port: 65536}", ["port"]),
        ("{names: [a], port: 1, type: SRV}", ["port"]),
        ("{names: [a], port: 1, type: MX}", ["type"]),
        ("{names: [a], port: 1, servers: [dns.example]}", ["servers[0]"]),
        ("{names: [a], port: 1, servers: [10]}", ["servers[0]"]),
        ("{names: [a], port: 1, servers: ['10.0.0.1:0']}", ["servers[0]"]),
        ("{names: [a], port: 1, minInterval: 999ms}", ["minInterval"]),
        ("{names: [a], port: 1, minInterval: 5}", ["minInterval"]),
        ("{names: [a], port: 1, maxInterval: 4s}", ["maxInterval"]),
        ("{names: [a], port: 1, timeout: 301s}", ["timeout"]),
        ("{names: [a], port: 1, onEmpty: drop}", ["onEmpty"]),
        ("{names: [a], port: 1, namespace: a/b}", ["namespace"]),
        ("{names: [a], port: 1, labels: {x: 1}}", ["labels.x"]),
        ("{names: [a], port: 1, labels: [x]}", ["labels"]),
        (f"{{names: [a], port: 1, labels: {{{', '.join(f'l{n}: x' for n in range(257))}}}}}", ["labels"]),
        (f"{{names: [a], port: 1, labels: {{x: {'y' * 4097}}}}}", ["labels.x"]),
        ("{names: [a], port: 1, name: b}", ["name"]),
    ],
)
def test_dns_discovery_is_strict(picker, parameters, paths):
    assert _paths(read_dns_discovery, picker, parameters) == paths


def test_http_sd_discovery_is_read(picker):
    assert _read(read_http_sd_discovery, picker, "{url: 'http://registry:80/t?x=y'}") == HttpSdDiscovery(
        "http://registry:80/t?x=y"
    )
    written = "{url: 'https://[fd00::1]/t', interval: 1s, timeout: 2s, namespace: n, caCertPath: ca.pem}"
    assert _read(read_http_sd_discovery, picker, written) == HttpSdDiscovery(
        "https://[fd00::1]/t", 1.0, 2.0, "n", Tls(ca_cert_path="ca.pem")
    )


@pytest.mark.parametrize(
    ("parameters", "paths"),
    [
        ("{}", ["url"]),
        ("{url: registry/t}", ["url"]),
        ("{url: 'ftp://registry/t'}", ["url"]),
        ("{url: 'http://me@registry/t'}", ["url"]),
        ("{url: 'http://registry/t#x'}", ["url"]),
        ("{url: 'http://registry:0/t'}", ["url"]),
        ("{url: 'http://registry:65536/t'}", ["url"]),
        ("{url: 'http://[fd00::zz]/t'}", ["url"]),
        ("{url: 'http://fd00::1/t'}", ["url"]),
        ("{url: 'http://registry/" + "x" * 2048 + "'}", ["url"]),
        ("{url: 'http://registry:x/t'}", ["url"]),
        ("{url: 'http:///t'}", ["url"]),
        ("{url: 'http://registry/a b'}", ["url"]),
        ("{url: 'http://registry/t', caCertPath: ca.pem}", ["url"]),
        ("{url: 'https://registry/t', clientCertPath: c.pem}", ["clientCertPath"]),
        ("{url: 'http://registry/t', interval: 500ms}", ["interval"]),
        ("{url: 'http://registry/t', timeout: 0}", ["timeout"]),
        ("{url: 'http://registry/t', refreshInterval: 1s}", ["refreshInterval"]),
    ],
)
def test_http_sd_discovery_is_strict(picker, parameters, paths):
    assert _paths(read_http_sd_discovery, picker, parameters) == paths


@pytest.mark.parametrize(
    ("written", "credentials"),
    [
        ("authorization: {credentialsFile: token}", Credentials("Bearer", "token")),
        ("authorization: {type: Token, credentialsFile: /run/t}", Credentials("Token", "/run/t")),
        ("basicAuth: {username: me, passwordFile: p}", Credentials("Basic", "p", "me")),
    ],
)
def test_credentials_are_read_by_the_words_of_prometheus(picker, written, credentials):
    for url in ("https://registry/t", "http://127.0.0.1:80/t", "http://localhost/t", "http://[::1]/t"):
        read = _read(read_http_sd_discovery, picker, f"{{url: '{url}', {written}}}")
        assert read == HttpSdDiscovery(url, credentials=credentials)


@pytest.mark.parametrize(
    ("written", "paths"),
    [
        ("authorization: {}", ["authorization.credentialsFile"]),
        ("authorization: {credentialsFile: 1}", ["authorization.credentialsFile"]),
        ("authorization: token", ["authorization", "authorization.credentialsFile"]),
        ("authorization: {type: Basic, credentialsFile: t}", ["authorization.type"]),
        ("authorization: {type: 'Bear er', credentialsFile: t}", ["authorization.type"]),
        ('authorization: {type: "X\\r\\nY", credentialsFile: t}', ["authorization.type"]),
        ("authorization: {credentials_file: t}", ["authorization.credentialsFile", "authorization.credentials_file"]),
        ("basicAuth: {passwordFile: p}", ["basicAuth.username"]),
        ("basicAuth: {username: a:b, passwordFile: p}", ["basicAuth.username"]),
        ("basicAuth: {username: " + "u" * 257 + ", passwordFile: p}", ["basicAuth.username"]),
        ("basicAuth: {username: me}", ["basicAuth.passwordFile"]),
        ("basicAuth: {username: me, passwordFile: p}, authorization: {credentialsFile: t}", ["basicAuth"]),
    ],
)
def test_credentials_are_strict(picker, written, paths):
    assert _paths(read_http_sd_discovery, picker, f"{{url: 'https://registry/t', {written}}}") == paths


@pytest.mark.parametrize("url", ["http://registry/t", "http://10.0.0.1/t", "http://127.0.0.1.example/t"])
def test_credentials_are_sent_where_nobody_reads_along(picker, url):
    assert _paths(read_http_sd_discovery, picker, f"{{url: '{url}', authorization: {{credentialsFile: t}}}}") == ["url"]


@pytest.mark.parametrize(
    ("written", "field"),
    [
        ("authorization: {credentials: s3cret, credentialsFile: t}", "credentialsFile"),
        ("basicAuth: {username: me, password: s3cret, passwordFile: t}", "passwordFile"),
    ],
)
def test_a_secret_in_the_configuration_is_refused_and_not_shown(picker, written, field):
    with pytest.raises(InputError, match="secrets do not stand in the configuration") as caught:
        _read(read_http_sd_discovery, picker, f"{{url: 'https://registry/t', {written}}}")
    assert field in caught.value.problems[0].hint
    assert "s3cret" not in str(caught.value)
