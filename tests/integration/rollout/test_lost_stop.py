"""A process that is told to stop in the moment in which it is READY is stopped: nobody has it on a list any more."""

import pytest

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(120)]

CONFIG = "bindings: {sample: {deadline: 5s}}\nswap: {shadow: off, canary: off, guard: off, drain: 2s}\n"


async def test_stop_that_crosses_with_the_last_answer_of_a_start_is_obeyed(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"), rev=1)
    async with host(text.picker, config=CONFIG) as bay:
        await bay.ready()
        supervisor = bay.host._supervisor
        processes = supervisor.routines["sample"]._processes
        check, stopped = supervisor.deployment.check, []

        def stop_at_the_last_step(name, generation):
            """The last thing that a start does, after its last await."""
            plan = check(name, generation)
            if not stopped:
                stopped.append(generation.number)
                (n,) = processes._launches
                processes.kill(n)
            return plan

        supervisor.deployment.check = stop_at_the_last_step
        bay.publish(text.scorer("v2"), rev=2)
        await bay.rev_is_live(2)
        await bay.wait_for(lambda: len(bay.plugin_pids()) == 1)
        assert stopped
        assert bay.live()["generation"] > stopped[0], "what was stopped never serves"
