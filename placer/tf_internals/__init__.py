"""All calls of TensorFlow's private API, for the releases that placer/tf_version.py names.

The modules, by subject: `functions` (graphs as functions), `calls` (of functions), `graphs` (while they are traced),
`autograph`, `op_types`, `variables`, `containers`, `resources` (datasets, tables), `devices`, `settings` and
`keras_parts`.

docs/decisions/001-function-defs.md says why each call is needed and what it saves; a new TensorFlow has to pass
tests/placer/test_tf_internals.py. tests/placer/test_private_names.py lists the few private names used elsewhere.
"""

import tensorflow as tf

from placer.tf_version import check_version

check_version(tf.__version__)  # another release may lack what is imported next

from placer.tf_internals import (  # noqa: E402
    autograph,
    calls,
    containers,
    devices,
    functions,
    graphs,
    keras_parts,
    op_types,
    resources,
    settings,
    variables,
)

__all__ = [
    "autograph",
    "calls",
    "containers",
    "devices",
    "functions",
    "graphs",
    "keras_parts",
    "op_types",
    "resources",
    "settings",
    "variables",
]
