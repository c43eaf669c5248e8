"""The command line and the environment that a spec gives."""

from dataclasses import replace

from hotbay.process.launch import STAGE0, ChannelDescriptors, LaunchSpec, command, environment

CHANNEL = ChannelDescriptors(call_in=5, call_out=6, control=7)


def spec(extra: tuple[tuple[str, str], ...] = ()) -> LaunchSpec:
    return LaunchSpec(
        interpreter="/usr/bin/python3.11",
        stage0=STAGE0,
        environment="/state/environments/ab",
        entrypoint="hotbay_standard:plugin",
        working_directory="/tmp",
        level="none",
        label="standard#7",
        extra_environment=extra,
    )


def test_command_runs_stage_0_isolated_and_without_site():
    assert command(spec()) == (
        "/usr/bin/python3.11",
        "-I",
        "-S",
        STAGE0,
        "/state/environments/ab",
        "hotbay_standard:plugin",
        "standard#7",
    )


def test_environment_is_exactly_the_contract():
    assert environment(spec(), CHANNEL) == {
        "LANG": "C.UTF-8",
        "PATH": "/usr/bin",
        "TMPDIR": "/tmp",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "HOTBAY_CHANNEL": "5,6,7",
    }


def test_granted_name_is_added():
    assert environment(spec((("TZ", "UTC"),)), CHANNEL)["TZ"] == "UTC"


def test_granted_name_never_replaces_a_fixed_one():
    granted = environment(spec((("HOTBAY_CHANNEL", "0,1,2"), ("PATH", "/evil"))), CHANNEL)
    assert granted["HOTBAY_CHANNEL"] == "5,6,7"
    assert granted["PATH"] == "/usr/bin"


def test_a_command_line_of_its_own_replaces_python_and_stage_0():
    assert command(replace(spec(), argv=("/bin/plugin", "--flag"))) == ("/bin/plugin", "--flag")
