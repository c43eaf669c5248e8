"""Plugins that behave badly: each has one defined outcome, and an error that a person can act on."""

import logging
import math

import pytest

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(90)]

PATIENT = "bindings: {sample: {deadline: 5s}}\npackages: [{id: sample, ready: 1s}]\n"


async def test_print_at_import_goes_to_the_plugins_log(host, text, packages, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="hotbay.plugin.sample")
    noisy = "print('hello from import')\nos.write(1, b'raw hello\\n')"
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1", start=noisy))
    async with host(config=PATIENT) as bay:
        assert (await bay.client.chat()).text == "v1"
        lines = [r.getMessage() for r in caplog.records if r.name == "hotbay.plugin.sample"]
        assert {"hello from import", "raw hello"} <= set(lines)
        assert bay.error() is None


NEVER_READY = {
    "raises at import": ({"start": "raise RuntimeError('no licence')"}, "START_FAILED", "no licence", "traceback"),
    "raises in init": ({"init": "raise RuntimeError('no licence')"}, "CONFIG_INVALID", "no licence", "parameters"),
    "hangs in init": ({"init": "time.sleep(60)"}, "READY_TIMEOUT", "did not make sample within 1 s", "constructor"),
    "leaves at import": ({"start": "sys.exit('no licence')"}, "START_FAILED", "exit code 1", "no licence"),
    "floods stderr": (
        {"start": "for n in range(20000): sys.stderr.write('flood ' * 20 + '\\n')\nos._exit(7)"},
        "START_FAILED",
        "exit code 7",
        "flood",
    ),
}


@pytest.mark.parametrize("fault", NEVER_READY)
async def test_plugin_that_cannot_start_is_named_with_what_to_do(host, text, packages, tmp_path, fault):
    given, code, message, hint = NEVER_READY[fault]
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1", **given))
    async with host(config=PATIENT) as bay:
        error = bay.error()
        assert error["code"] == code
        assert message in error["message"]
        assert hint in error["hint"]
        # The host is ready without it, and says so with every decision.
        answer = await bay.client.chat()
        assert answer.status == 200
        assert bay.degraded() == {("sample", "UNAVAILABLE"): 1}


async def test_plugin_that_exits_at_its_third_call_is_restarted(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1", score="if self.calls == 3: os._exit(9)"))
    async with host(config=PATIENT) as bay:
        before = bay.live()
        answers = [await bay.client.chat() for _ in range(3)]
        assert [answer.status for answer in answers] == [200] * 3
        assert bay.degraded() == {("sample", "CRASHED"): 1}
        await bay.wait_for(lambda: bay.live()["generation"] > before["generation"] and bay.live()["pid"])
        assert "exit code 9" in bay.error()["message"]
        assert (await bay.client.chat()).text == "v1"


BAD_RESULTS = {
    "wrong length": "return [[1.0] * (len(endpoints) + 1) for _ in requests]",
    "too few rows": "return []",
    "no numbers": "return 'nonsense'",
    "all NaN": f"return [[float('{math.nan}')] * len(endpoints) for _ in requests]",
}


@pytest.mark.parametrize("fault", BAD_RESULTS)
async def test_unusable_scores_are_neutral_and_counted(host, text, packages, tmp_path, fault):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1", score=BAD_RESULTS[fault]))
    async with host(config=PATIENT) as bay:
        answer = await bay.client.chat()
        assert answer.status == 200
        assert bay.degraded() == {("sample", "BAD_RESULT"): 1}
        assert bay.plugin_errors() == {("score", "sample", "BAD_RESULT"): 1}
        [binding] = [b for b in bay.host.status()["bindings"] if b["ref"] == "sample"]
        assert (binding["point"], binding["degraded"], binding["last_reason"]) == ("score", 1, "BAD_RESULT")
        assert bay.plugin()["restarts"] == 0


async def test_one_nan_counts_as_nothing_and_is_counted(host, text, packages, tmp_path):
    score = "return [[float('nan') if name == 'default/v1' else 0.5 for name in endpoints.ids] for _ in requests]"
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1", score=score))
    async with host(config=PATIENT) as bay:
        assert (await bay.client.chat()).text == "v2"
        assert bay.serving.metrics.bad_scores.get("sample") == 1
        assert bay.degraded() == {}


async def test_flood_of_stderr_while_serving_costs_no_answer(host, text, packages, tmp_path):
    flood = "[sys.stderr.write('flood ' * 100 + chr(10)) for _ in range(2000)]"
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1", score=flood))
    async with host(config=PATIENT) as bay:
        answers = [await bay.client.chat() for _ in range(3)]
        assert [(answer.status, answer.text) for answer in answers] == [(200, "v1")] * 3
        assert bay.degraded() == {}


async def test_types_other_than_the_manifests_are_refused(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1", type="other-scorer"))
    async with host(config=PATIENT) as bay:
        error = bay.error()
        assert error["code"] == "INVALID_PACKAGE"
        assert "provides other-scorer, its manifest says sample-scorer" in error["message"]
        assert "[tool.hotbay] types" in error["hint"]
