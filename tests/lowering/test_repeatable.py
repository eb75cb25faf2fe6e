"""Random floats give the same bits in every call and process, and partly on any number of cores."""

import json
import os
import subprocess
import sys

import pytest

#: Fine and kernel shapes, channels last, with strides and groups: a form or two each.
CODE = """
import os
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:{cores}])
import hashlib, json
import jax, jax.numpy as jnp
import numpy as np
import jaxconv

LAYERS = {{
    "dense": ((2, 14, 14, 32), (3, 3, 32, 64), 1, 1),
    "stem": ((4, 64, 64, 3), (7, 7, 3, 16), 2, 1),
    "depthwise": ((4, 28, 28, 48), (5, 5, 1, 48), 2, 48),
    "pointwise": ((16, 56, 56, 64), (1, 1, 64, 128), 1, 1),
    "long": ((2, 4096, 4), (31, 4, 8), 1, 1),
}}
rng = np.random.default_rng(0)
draw = lambda shape: jnp.asarray(rng.standard_normal(shape, np.float32))
found = {{}}
with jaxconv.installed():
    for name, (fine, kernel, stride, groups) in LAYERS.items():
        rank = len(fine) - 2
        space = "DHW"[-rank:]
        layouts = (f"N{{space}}C", f"{{space}}IO", f"N{{space}}C")

        more = {{"dimension_numbers": layouts, "feature_group_count": groups}}

        def forward(x, w):
            return jax.lax.conv_general_dilated(x, w, (stride,) * rank, "SAME", **more)

        x, w = draw(fine), draw(kernel)
        y = draw(jax.eval_shape(forward, x, w).shape)
        step = jax.jit(lambda x, w, y: (forward(x, w), *jax.vjp(forward, x, w)[1](y)))
        calls = [[np.asarray(one).tobytes() for one in step(x, w, y)] for _ in range(2)]
        assert calls[0] == calls[1], name
        found[name] = [hashlib.sha256(one).hexdigest() for one in calls[0]]
print(json.dumps(found))
"""


def start(cores):
    """A process on so many cores, in which two calls agree."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "XLA_FLAGS": ""}
    command = [sys.executable, "-c", CODE.format(cores=cores)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_results_repeat():
    """Weights gradients are summed in parts where there are cores for them, and may differ."""
    processes = [start(2), start(2), start(1)]
    outputs = [process.communicate(timeout=240)[0] for process in processes]
    assert not any(process.returncode for process in processes)
    first, again, alone = map(json.loads, outputs)
    assert first == again
    assert [x[:2] for x in first.values()] == [x[:2] for x in alone.values()]
