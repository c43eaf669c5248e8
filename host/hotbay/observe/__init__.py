"""What can be seen of a running host: metrics, the facts a status is made of, and its own tasks that broke.

Import rule: modules here import no other folder of hotbay; everybody may import them. `metrics` and `families` are the only
doors to prometheus_client. `facts`, `histogram`, `plugin_counters` and `tables` are pure.
"""
