"""What the lists of models and the pages of NVIDIA's exporter say of an endpoint."""

import math
from types import MappingProxyType

import pytest
from hotbay.datalayer.attributes import AttributeMap
from hotbay.datalayer.endpoint import Endpoint, EndpointMetadata
from hotbay.datalayer.pages.exposition import PageReader, Sample
from hotbay.datalayer.source import SourceError
from hotbay.datalayer.sources.dcgm import COLUMNS, FAMILIES, GpusMissingError, read_gpus
from hotbay.datalayer.sources.models import (
    MAX_MODELS,
    MODELS_ATTRIBUTE,
    ModelsExtractor,
    ModelsPage,
    ServedModel,
    read_models,
)
from hypothesis import given
from hypothesis import strategies as st

POD = EndpointMetadata("ns/decode-0", "decode-0", "10.0.0.1", 8000)
RANK = EndpointMetadata("ns/decode-0-rank-1", "decode-0-rank-1", "10.0.0.1", 8001)
# The default set of dcgm-exporter 4.6 on a machine with three GPUs, of which two belong to pods.
PAGE = b"""\
# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",pod="decode-0",namespace="ns"} 25
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",pod="decode-0",namespace="ns"} 75
DCGM_FI_DEV_GPU_UTIL{gpu="2",UUID="GPU-c",pod="decode-1",namespace="ns"} 100
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a",pod="decode-0",namespace="ns"} 40
DCGM_FI_DEV_GPU_TEMP{gpu="1",UUID="GPU-b",pod="decode-0",namespace="ns"} 9223372036854775794
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",pod="decode-0",namespace="ns"} 100.5
DCGM_FI_DEV_POWER_USAGE{gpu="1",UUID="GPU-b",pod="decode-0",namespace="ns"} 200
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-a",pod="decode-0",namespace="ns"} 60
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",pod="decode-0",namespace="ns"} 20
DCGM_FI_DEV_FB_FREE{gpu="1",UUID="GPU-b",pod="decode-0",namespace="ns"} 20
DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-b",pod="decode-0",namespace="ns"} 20
"""


def samples(page=PAGE):
    return PageReader(FAMILIES).read(page).samples


@pytest.mark.parametrize("endpoint", [POD, RANK])
def test_gpus_of_a_pod_are_read(endpoint):
    assert read_gpus(samples(), endpoint) == {
        "gpu_utilization": 0.75,
        "gpu_memory_utilization": 0.5,
        "gpu_temperature_celsius": 40.0,
        "gpu_power_watts": 300.5,
    }
    assert COLUMNS.keys() == read_gpus(samples(), endpoint).keys()


def test_samples_without_a_pod_are_those_of_the_endpoint():
    page = b'DCGM_FI_DEV_GPU_UTIL{gpu="0",pod=""} 10\nDCGM_FI_DEV_GPU_UTIL{gpu="1"} 30\n'
    found = read_gpus(samples(page), POD)
    assert found["gpu_utilization"] == pytest.approx(0.3)
    assert [found[name] for name in COLUMNS if name != "gpu_utilization"] == [None, None, None]


@pytest.mark.parametrize(
    "page",
    [
        b"up 1\n",
        b'DCGM_FI_DEV_GPU_UTIL{pod="decode-1",namespace="ns"} 10\n',
        b'DCGM_FI_DEV_GPU_UTIL{pod="decode-0",namespace="other"} 10\n',
        b'DCGM_FI_DEV_GPU_UTIL{pod="decode"} 10\n',
        b"DCGM_FI_DEV_GPU_UTIL 9223372036854775792\n",
        b"DCGM_FI_DEV_GPU_UTIL 140737488355328\n",
        b"DCGM_FI_DEV_GPU_UTIL NaN\n",
        b"DCGM_FI_DEV_GPU_UTIL -1\n",
        b"DCGM_FI_DEV_GPU_UTIL 101\n",
    ],
)
def test_a_page_that_says_nothing_of_the_endpoints_gpus_is_a_failure(page):
    with pytest.raises(GpusMissingError, match="ns/decode-0"):
        read_gpus(samples(page), POD)


@given(st.dictionaries(st.sampled_from(sorted(FAMILIES)), st.lists(st.floats(), max_size=3)))
def test_whatever_a_page_says_shares_are_shares_and_numbers_are_finite(values):
    page = {
        name: tuple(Sample(MappingProxyType({"gpu": str(i)}), value) for i, value in enumerate(row))
        for name, row in values.items()
    }
    try:
        found = read_gpus(page, POD)
    except GpusMissingError:
        return
    assert all(value is None or math.isfinite(value) for value in found.values())
    assert 0.0 <= found["gpu_utilization"] <= 1.0
    assert found["gpu_memory_utilization"] is None or 0.0 <= found["gpu_memory_utilization"] <= 1.0


def test_models_and_the_parents_of_adapters_are_read():
    body = b'{"object": "list", "data": [{"id": "base", "object": "model", "parent": null}, {"id": "ad", "parent": "base"}]}'
    assert read_models(body) == ModelsPage((ServedModel("base"), ServedModel("ad", "base")))
    assert read_models(b'{"data": []}') == ModelsPage(())


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"{}", b'{"data": {}}', b'{"data": [1]}', b'{"data": [{"id": ""}]}', b'{"data": [{"id": 1}]}',
     b'{"data": [{"id": "' + b"a" * 254 + b'"}]}'],
)  # fmt: skip
def test_what_is_no_list_of_models_is_refused(body):
    with pytest.raises(SourceError) as caught:
        read_models(body)
    assert caught.value.reason == "not_models"


@pytest.mark.parametrize(("count", "holds"), [(MAX_MODELS, True), (MAX_MODELS + 1, False)])
def test_a_server_may_serve_so_many_models_and_no_more(count, holds):
    body = ('{"data": [' + ",".join(['{"id": "a"}'] * count) + "]}").encode()
    if holds:
        assert len(read_models(body).models) == count
    else:
        with pytest.raises(SourceError):
            read_models(body)


@pytest.mark.anyio
async def test_models_become_an_attribute():
    page = ModelsPage((ServedModel("base"), ServedModel("ad", "base")))
    found = await ModelsExtractor("x").extract(page, Endpoint(POD))
    kept = AttributeMap()
    kept.update(found)
    assert kept.get(MODELS_ATTRIBUTE) == [{"id": "base"}, {"id": "ad", "parent": "base"}]
