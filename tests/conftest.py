"""What holds for every test: how much hypothesis tries.

The default lane tries a little at each run, with other values each time; `make test-slow` tries a lot.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("quick", max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("quick")
