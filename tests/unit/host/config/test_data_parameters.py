"""Parameters of the host's own discoveries and data sources: what is read, and problems with their places."""

import pytest
from hotbay.config.data_parameters import (
    READERS,
    MetricsSource,
    ObjectDirectory,
    Tls,
    read_metrics_source,
    read_no_parameters,
    read_object_directory,
)
from hotbay.config.data_types import ObjectKind
from hotbay.config.discovery_parameters import FileDiscovery, read_file_discovery
from hotbay.errors import InputError

ONE = "plugins:\n- {name: d, type: any, parameters: %s}\n"


def _read(read, picker, parameters):
    config = picker(ONE % parameters)
    return read(config, config.plugins[0])


def _paths(read, picker, parameters):
    with pytest.raises(InputError) as caught:
        _read(read, picker, parameters)
    assert {(p.place.file, p.place.line) for p in caught.value.problems} == {("picker.yaml", 4)}
    return [p.path.removeprefix("plugins[0].parameters.") for p in caught.value.problems]


def test_file_discovery_is_read(picker):
    read = _read(read_file_discovery, picker, "{path: e.yaml, watchFile: true}")
    assert read == FileDiscovery("e.yaml", watch_file=True)
    assert _read(read_file_discovery, picker, "{path: e.yaml}") == FileDiscovery("e.yaml", watch_file=False)


@pytest.mark.parametrize("parameters", ["{}", "{path: ''}", "{path: e, watchFile: yes}", "{path: e, wathFile: true}"])
def test_parameters_of_file_discovery_are_strict(picker, parameters):
    assert len(_paths(read_file_discovery, picker, parameters)) == 1


def test_parameters_of_metrics_source_are_read(picker):
    read = _read(read_metrics_source, picker, "{path: /m, port: '9000', interval: 100ms}")
    assert read == MetricsSource("/m", 9000, 0.1)
    assert _read(read_metrics_source, picker, "{scheme: http}") == MetricsSource("/metrics", None, None)


def test_tls_is_read_and_servers_are_proved_unless_it_is_said_otherwise(picker):
    assert _read(read_metrics_source, picker, "{scheme: https}").tls == Tls(insecure_skip_verify=False)
    files = "caCertPath: ca.pem, clientCertPath: c.pem, clientKeyPath: k.pem"
    read = _read(read_metrics_source, picker, f"{{scheme: https, {files}}}")
    assert (read.scheme, read.tls) == ("https", Tls(False, "ca.pem", "c.pem", "k.pem"))
    assert _read(read_metrics_source, picker, "{insecureSkipVerify: true}").tls == Tls(insecure_skip_verify=True)


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ("{scheme: ftp}", "scheme"),
        ("{scheme: HTTPS}", "scheme"),
        ("{insecureSkipVerify: 1}", "insecureSkipVerify"),
        ("{caCertPath: ''}", "caCertPath"),
        ("{scheme: https, clientCertPath: c.pem}", "clientCertPath"),
        ("{scheme: https, clientKeyPath: k.pem}", "clientKeyPath"),
        ("{path: metrics}", "path"),
        ("{path: ''}", "path"),
        ("{port: 0}", "port"),
        ("{port: 65536}", "port"),
        ("{port: abc}", "port"),
        ("{port: true}", "port"),
        ("{interval: 10ms}", "interval"),
        ("{interval: 49ms}", "interval"),
        ("{interval: 1}", "interval"),
        ("{intervall: 1s}", "intervall"),
    ],
)
def test_parameters_of_metrics_source_are_strict(picker, parameters, path):
    assert _paths(read_metrics_source, picker, parameters) == [path]


def test_limits_of_metrics_source_are_values(picker):
    assert _read(read_metrics_source, picker, "{interval: 50ms, port: 65535}") == MetricsSource(
        port=65535, interval_s=0.05
    )
    assert _read(read_metrics_source, picker, "{port: 1}").port == 1


@pytest.mark.parametrize("path", ["/m x", "/m\\r\\nx: y", "/ü", "/" + "a" * 1024])
def test_path_of_metrics_can_stand_in_a_request_line(picker, path):
    assert _paths(read_metrics_source, picker, f'{{path: "{path}"}}') == ["path"]


def test_sources_have_the_places_that_their_servers_have_by_default(picker):
    assert _read(READERS["models-data-source"], picker, "{}") == MetricsSource("/v1/models")
    assert _read(READERS["dcgm-data-source"], picker, "{}") == MetricsSource("/metrics", 9400)
    assert _read(READERS["dcgm-data-source"], picker, "{port: 1, path: /p}") == MetricsSource("/p", 1)


def test_object_directory_is_read(picker):
    read = _read(read_object_directory, picker, "{path: objects, apiVersion: inference/v1alpha2, kind: Objective}")
    assert read == ObjectDirectory("objects", ObjectKind("inference", "v1alpha2", "Objective"))
    core = _read(read_object_directory, picker, "{path: o, apiVersion: v1, kind: Pod}")
    assert core.kind == ObjectKind("", "v1", "Pod")


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ("{apiVersion: v1, kind: Pod}", "path"),
        ("{path: o, kind: Pod}", "apiVersion"),
        ("{path: o, apiVersion: v1}", "kind"),
        ("{path: o, apiVersion: v1, kind: pod}", "plugins[0].parameters"),
        ("{path: o, apiVersion: a/b/v1, kind: Pod}", "plugins[0].parameters"),
        ("{path: o, apiVersion: apps, kind: Pod}", "plugins[0].parameters"),
        ("{path: o, apiVersion: v1, kind: Pod, watch: true}", "watch"),
    ],
)
def test_parameters_of_object_directory_are_strict(picker, parameters, path):
    assert _paths(read_object_directory, picker, parameters) == [path]


def test_types_without_parameters_refuse_any(picker):
    assert _read(READERS["endpoint-notification-source"], picker, "{}") is None
    assert _paths(read_no_parameters, picker, "{interval: 1s}") == ["interval"]
