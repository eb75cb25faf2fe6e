"""Tests of other projects, run without the line and with it.

    python -m tests.clients all                 # hours
    python -m tests.clients dm-haiku dm-pix     # these, and the other rows stay

The line is `JAXCONV_INSTALL`. Each project gets an environment of its own, in a folder that stays
(`--folder`), from which `python -m tests.clients` goes on. The tests are those of the project's
source distribution or, where it has none, of its repository, which is then installed from there.
What was found is written to tests/clients/results.csv; docs/clients.md shows it.
"""

from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results.csv"


@dataclass(frozen=True)
class Client:
    """A project, by the name that pip knows."""

    name: str
    #: pytest's arguments, in the folder of the source
    tests: str
    #: what pip installs besides, for the tests
    needs: str = ""
    #: where the tests are, if the source distribution has none
    repository: str = ""
    #: for the environment
    python: str = "python3.13"
    #: for each of the two runs
    minutes: float = 8


CLIENTS = (
    Client("flax", "tests/linen/linen_linear_test.py tests/nnx/nn/conv_test.py -k conv"),
    Client(
        "dm-haiku",
        "haiku/_src/conv_test.py haiku/_src/depthwise_conv_test.py haiku/_src/nets",
        "chex cloudpickle dill mock dm-tree optax flax tensorflow-cpu",
    ),
    Client(
        "equinox",
        "tests/test_nn.py",
        "beartype optax numpy<2.5",
        "https://github.com/patrick-kidger/equinox",
    ),
    Client("keras", "keras/src/layers/convolutional", "tensorflow-cpu"),
    Client("dm-pix", "dm_pix -k 'blur or elastic or ssim or patch'", "chex tensorflow-cpu"),
    Client("jaxwt", "tests/test_conv_fwt3d.py tests/test_swt.py tests/test_packets.py"),
    Client("scico", "scico/test/linop scico/test/flax scico/test/operator", "scico>=0.0.7"),
    Client(
        "sequence-layers",
        "sequence_layers/jax/convolution1d_test.py",
        "chex tensorflow-cpu",
        "https://github.com/google/sequence-layers",
    ),
    Client(
        "netket",
        "test/models/test_autoreg.py -k conv",
        "jax<0.11",  # netket annotates by `str | ArrayLike`
        "https://github.com/netket/netket",
    ),
    Client(
        "torchax",
        "test/test_conv.py test/test_ops.py -k conv",
        "torch==2.13.0+cpu jax expecttest",
        "https://github.com/google/torchax",
        python="python3.11",
    ),
)
