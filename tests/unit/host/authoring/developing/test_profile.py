"""The configurations of `hotbay dev` are ordinary ones: both readers take them."""

from pathlib import Path

import pytest
from hotbay.authoring.developing.profile import BESIDE, HostWishes, host_text, picker_text
from hotbay.config.host_config import HostConfig, load_host_config
from hotbay.config.picker_config import load_picker_config
from hotbay.errors import InputError


def host(*, is_patient: bool = False, has_bundled: bool = True) -> HostConfig:
    wishes = HostWishes(
        plugin_id="mine",
        capabilities=("metric",),
        types=("mine-scorer",),
        refs=("mine",),
        endpoints=("http://127.0.0.1:9000",),
        listen="127.0.0.1:0",
        has_bundled=has_bundled,
        is_patient=is_patient,
    )
    return load_host_config(host_text(wishes), file="x", base_directory=Path("/w"), environment={}, is_root=False)


def test_a_version_is_in_force_at_once_and_given_up_at_once() -> None:
    config = host()
    assert (config.swap.shadow, config.swap.canary, config.swap.guard) == (None, None, None)
    assert config.supervise.budget.failures == 1
    assert config.packages[0].grants == ("metric",)
    assert [source.name for source in host(has_bundled=False).sources] == ["project"]


@pytest.mark.parametrize(("is_patient", "deadline_s", "hello_s"), [(True, 3600.0, 3600.0), (False, None, 5.0)])
def test_a_debugger_is_waited_for(is_patient: bool, deadline_s: float | None, hello_s: float) -> None:
    config = host(is_patient=is_patient)
    binding = config.bindings.get("mine")
    assert (binding.deadline_s if binding else None) == deadline_s
    assert config.packages[0].hello_s == hello_s


def test_own_types_stand_beside_bundled_scorers_with_weight_1() -> None:
    points = {"a-filter": ["filter"], "a-scorer": ["score"], "a-picker": ["pick"], "a-maker": ["produce"]}
    config = load_picker_config(picker_text(points), file="x")
    assert {entry.type for entry in config.plugins} == {*points, *BESIDE}
    (profile,) = config.profiles
    refs = {entry.ref: entry.weight for entry in profile.plugins}
    assert refs.keys() == {"a-filter", "a-scorer", "a-picker", *BESIDE}
    assert refs["a-scorer"] == 1


def test_a_type_of_the_bundled_name_stands_once() -> None:
    config = load_picker_config(picker_text({BESIDE[0]: ["score"]}), file="x")
    assert sorted(entry.type for entry in config.plugins) == sorted(BESIDE)


def test_parsers_and_detectors_have_their_places() -> None:
    config = load_picker_config(picker_text({"a-parser": ["parse"], "a-detector": ["saturation"]}, beside=()), file="x")
    assert {entry.type for entry in config.plugins} == {"a-parser", "a-detector", "openai-parser"}


def test_types_of_the_data_layer_ask_for_a_file() -> None:
    with pytest.raises(InputError, match="data layer") as caught:
        picker_text({"a-discovery": ["discover"]})
    assert "--config-file" in caught.value.hint
