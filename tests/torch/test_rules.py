"""`jaxconv.torch` against PyTorch: what is refused, by which names; sizes, signatures.

Calls are drawn at random, and both take a call or both refuse the call.
"""

import inspect
import re
from functools import partial

import jax
import numpy as np
import pytest

from jaxconv import torch as ours
from jaxconv.torch._rules import NAMES
from tests.support.peers import peer
from tests.support.torch_layers import EVERY, draw_call

torch = peer("torch")
F = torch.nn.functional
# PyTorch warns that it copies the input to add the odd zero of padding="same".
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")


def break_call(rng, call):
    """Change an argument or a size, so that PyTorch may refuse the call."""
    arguments, rank = dict(call.arguments), int(call.name[-2])
    strange = [0, -1, 2, 3, 5, (1,) * rank, (2,) * (rank + 1), (), (3,), True, 1.0, None, "same"]
    which = rng.integers(6)
    if which < 4:
        name = str(rng.choice([*arguments, "stride"]))
        arguments[name] = strange[rng.integers(len(strange))]
        return call._replace(arguments=arguments)
    field = str(rng.choice(["input", "weight", "bias"]))
    size = list(getattr(call, field) or (1,))
    if which == 4:
        size[rng.integers(len(size))] += int(rng.choice([-1, 1]))
    else:
        size = [size[1:], [1, *size]][rng.integers(2)]
    return call._replace(**{field: tuple(size)})


def size_or_error(compute, *tensors):
    try:
        return tuple(compute(*tensors).shape)
    except (RuntimeError, ValueError, TypeError) as error:
        return error


typed = partial(jax.ShapeDtypeStruct, dtype=np.float32)


def check_refusal(rng):
    call = break_call(rng, draw_call(rng, mode="zeros"))
    sizes = [call.input, call.weight, *[call.bias] * (call.bias is not None)]
    their = size_or_error(call.theirs, *(torch.zeros(size) for size in sizes))
    our = size_or_error(partial(jax.eval_shape, call.ours), *map(typed, sizes))
    # We refuse results without elements.
    if isinstance(their, tuple) and 0 in their[-int(call.name[-2]) :]:
        their = ValueError()
    if isinstance(our, Exception):
        assert isinstance(their, Exception), (call, our)
        assert str(our).startswith(f"{call.name}: "), (call, our)
        ours_alone = rf"`({'|'.join(NAMES)})`|\b(src|dst)\b"
        assert not re.search(ours_alone, str(our)), (call, our)
    else:
        assert our == their, call
    return isinstance(our, Exception)


@pytest.mark.parametrize("count", [150, pytest.param(1500, marks=pytest.mark.slow)])
def test_what_pytorch_refuses_is_refused(count):
    rng = np.random.default_rng(count)
    refused = sum(check_refusal(rng) for _ in range(count))
    assert 0.3 < refused / count < 0.9


def test_a_tensor_is_refused_with_a_remedy():
    text = r"`weight` must be a JAX or NumPy array; got .*\. jaxconv\.torch\.load converts"
    with pytest.raises(TypeError, match=text):
        ours.conv1d(np.zeros((1, 1, 4), np.float32), torch.zeros((1, 1, 3)))


def test_output_padding_leads_to_the_output_size():
    """For all sizes around those within reach, or else to PyTorch's words."""
    rng, taken = np.random.default_rng(11), 0
    for _ in range(100):
        call = draw_call(rng, name="conv_transpose2d")
        into, out, *kernel = call.weight
        named = ("stride", "padding", "dilation")
        arguments = {n: v for n, v in call.arguments.items() if n in named}
        arguments = {n: v * 2 if np.shape(v) == (1,) else v for n, v in arguments.items()}
        module = torch.nn.ConvTranspose2d(into, out, kernel, **arguments)
        x = torch.zeros(call.input)
        if isinstance(least := size_or_error(module, x), Exception):
            continue  # all of the result is output padding
        least = least[-2:]
        size = tuple(int(n + rng.choice([-1, 0, 0, 1, 1, 2])) for n in least)
        size = (*call.input[:-2], *size) if rng.random() < 0.3 else size
        find = partial(ours.find_output_padding, x, module.weight, size, **arguments)
        their = size_or_error(partial(module, output_size=list(size)), x)
        if isinstance(their, tuple):
            assert their[-2:] == size[-2:]
            assert find() == tuple(np.subtract(size[-2:], least))
            taken += 1
        else:
            [within] = re.findall(r"valid sizes range (.+) \(for an input", str(their))
            within = within.replace("[", "(").replace("]", ")")
            with pytest.raises(ValueError, match=re.escape(f"must be {within} for an input")):
                find()
    assert 20 < taken < 80


def signature_of(function):
    return {n: p.default for n, p in inspect.signature(function).parameters.items()}


@pytest.mark.parametrize("name", EVERY)
def test_the_signatures_of_the_functions(name):
    """Those of built-in functions stand in the first line of their docstrings."""
    lines = getattr(F, name).__doc__.splitlines()
    line = next(line for line in lines if line.startswith(f"{name}("))
    namespace = {}
    exec(f"def {line.replace('-> Tensor', '')}: ...", namespace)
    more = {} if "transpose" in name else {"padding_mode": "zeros"}
    found = signature_of(getattr(ours, name))
    assert list(found.items()) == [*signature_of(namespace[name]).items(), *more.items()]
