import time
import pytest
pytestmark = [pytest.mark.process, pytest.mark.anyio]

async def test_smoke(host, packages, text, tmp_path):
    t=time.monotonic()
    packages.make(tmp_path/"packages"/"a", text.scorer("v1"))
    async with host() as bay:
        print("ready", time.monotonic()-t)
        async with bay.load(100) as load:
            await load.more(50)
            t=time.monotonic()
            bay.publish(text.scorer("v2"), rev=2)
            await bay.rev_is_live(2)
            print("swap", time.monotonic()-t)
            await load.more(50)
        print(load.texts(), load.failed[:3], bay.degraded(), bay.plugin_errors())
        t=time.monotonic()
    print("stop", time.monotonic()-t)
