"""The two configurations that the demo's host runs with, as text. Pure.

Both are ordinary files: what stands here can be copied and used with `hotbay run -c`.
"""

from collections.abc import Sequence

__all__ = ["ADMIN", "PICKER", "STATE", "host_config"]

STATE = "state"
ADMIN = "admin.sock"
"""The host's state directory, beside its configuration, and the socket in it that tells its status."""

PICKER = """\
# Load and prefix affinity together. Three packages, so three plugin processes: standard, prefix-cache, least-loaded.
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {name: queue, type: queue-scorer}
- {name: running, type: running-requests-size-scorer}
- {name: load, type: least-loaded-scorer}
- name: prefixes
  type: approx-prefix-cache-producer
  parameters: {autoTune: false, blockSizeTokens: 16}
- {name: prefix, type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: prefixes}}
- {name: best, type: max-score-picker}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue, weight: 1}
  - {pluginRef: running, weight: 1}
  - {pluginRef: load, weight: 2}
  - {pluginRef: prefix, weight: 2}
  - {pluginRef: best}
"""

_HOST = """\
apiVersion: hotbay/v1alpha1
kind: HostConfig
state_dir: state
listen: {{http: "127.0.0.1:0"}}
scheduling: {{file: picker.yaml}}
endpoints:
{endpoints}
sources:
- {{name: bundled}}
- {{name: published, directory: packages}}
# The defaults are tens of milliseconds, which is plenty for a plugin and too little for a machine whose two cores also
# run three model servers and their clients: an answer that waits for a core is late, and late counts as degraded.
bindings:
  queue: {{deadline: 1s}}
  running: {{deadline: 1s}}
  load: {{deadline: 1s}}
  prefixes: {{deadline: 1s}}
  prefix: {{deadline: 1s}}
# Short enough to be seen: the defaults watch a new version for most of a minute.
swap:
  shadow: {{sample: 0.5, calls: 20, for: 1s}}
  canary: {{share: 0.2, for: 2s, min_requests: 5}}
  guard: {{for: 2s, calls: 10}}
  drain: 5s
isolation: {{level: none}}
logging: {{level: warning, format: text}}
scrape: {{interval: 100ms}}
"""


def host_config(urls: Sequence[str]) -> str:
    """The HostConfig for these model servers; it expects `picker.yaml` and the folder `packages` beside it."""
    endpoints = "\n".join(f'- {{name: llama-{number}, url: "{url}"}}' for number, url in enumerate(urls))
    return _HOST.format(endpoints=endpoints)
