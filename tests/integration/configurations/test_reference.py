"""Configurations of the reference router, unchanged and under both names of its group, decide in a running host."""

from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(180)]

MANIFEST = "host-disaggregation.yaml"
KEYS = {
    "scheduling": {"allow_experimental": True},
    # Packages that the next configuration needs again stay.
    "supervise": {"linger": "10m"},
}
FILES = sorted((Path(__file__).resolve().parents[2] / "data" / "reference_configs").iterdir())
MANY_PACKAGES = {
    "cold-and-busy", "encode-prefill-decode", "flow-control", "gate-off", "lora", "old-forms", "predicted-latency",
}  # fmt: skip
"""Those whose packages no other test here needs: to make each ready takes seconds."""
GROUPS = {"new": "llm-d.ai/v1alpha1", "old": "inference.networking.x-k8s.io/v1alpha1"}
DECODING = {"decode-0", "decode-1"}
STAGED = {"prefill-decode", "old-forms", "encode-prefill-decode"}
"""Those that have prompts prefilled elsewhere."""
BY_ROLE = STAGED | {"no-profiles"}
TOKENS = 512


def endpoints_of(bay) -> str:
    """What `data-layer.yaml` reads beside itself."""
    rows = (f"- {{name: found-{n}, address: {s.host}, port: {s.port}}}\n" for n, s in enumerate(bay.servers.values()))
    return "endpoints:\n" + "".join(rows)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in MANY_PACKAGES else [])
        for path in FILES
    ],
)
async def test_configuration_of_the_reference_decides(bay, tmp_path, prompt_of, path, group):
    (tmp_path / "endpoints.yaml").write_text(endpoints_of(bay))
    await bay.use(path.read_text().replace(GROUPS["new"], GROUPS[group]), tmp_path)
    answer = await bay.ask(prompt_of(f"{path.stem} {group}", TOKENS))
    assert (answer.status, answer.reason) == (200, "")
    assert answer.server in (DECODING if path.stem in BY_ROLE else bay.servers)
    assert bool(bay.servers[answer.server].seen[-1].prefiller) == (path.stem in STAGED)
    assert ("x-session-token" in answer.headers) == (path.stem == "session-affinity")
    bay.check()
