"""Engine: PyTorch, once in each of its memory formats; gradients one at a time.

A training step is in either format, an inference channels last; eager, or compiled and frozen.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks import machine, networks
from benchmarks.arrays import enter, from_layout, leave, shapes_in, to_layout
from benchmarks.engines import Timed, Unsupported
from benchmarks.layer import DTYPES, Layer


def versions() -> dict[str, str]:
    """What ran."""
    cuda = torch.cuda.is_available()
    return {
        "torch": torch.__version__,
        "platform": "cuda" if cuda else "cpu",
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "devices": str(torch.cuda.device_count() if cuda else 1),
    }


def prepare(compiling: bool, job: dict, operands: list[np.ndarray]) -> dict[str, Timed]:
    """Everything a job asks for, in each memory format that exists for its rank.

    Inferences are in the one format that is fast, and may be compiled by `torch.compile`.
    """
    torch.set_grad_enabled(job["kind"] == "step")
    torch.set_num_threads(machine.cores())
    torch.backends.cudnn.benchmark = True  # the fastest algorithm of those tried, as XLA does
    if job["kind"] == "inference":
        return {"": _network(job, operands, "channels_last", compiling)}
    if compiling:
        raise Unsupported("only inferences are compiled")
    if job["kind"] == "layer":
        layer = job["layer"]
        formats = _formats(layer.rank if layer.members == 1 else 1)
        if _writes_past_its_workspace(layer, job["op"]):
            formats.pop("channels_last", None)
        return {name: _layer(job, operands, fmt) for name, fmt in formats.items()}
    return {name: _network(job, operands, name, False) for name in _formats(2)}


def _formats(rank: int) -> dict[str, torch.memory_format]:
    last = {2: torch.channels_last, 3: torch.channels_last_3d}.get(rank)
    formats = {"contiguous": torch.contiguous_format}
    return formats | {"channels_last": last} if last else formats


def _writes_past_its_workspace(layer: Layer, op: str) -> bool:
    """Whether oneDNN's kernel for channels last would corrupt memory (its issue 6035).

    Its weights gradient of a strided 1x1 convolution gathers the fine channels in a workspace
    made for fewer than it writes, if they do not fill a vector register. What comes of it is
    wrong sums with two threads and a crash with one. Seen in PyTorch 2.13.
    """
    return (
        op == "weights"
        and layer.rank == 2
        and set(layer.kernel) == {1}
        and max(layer.strides) > 1
        and layer.channels[0] // layer.groups < 16
    )


def _layer(job: dict, operands: list[np.ndarray], fmt: torch.memory_format) -> Timed:
    layer, op = job["layer"], job["op"]
    arrays = [_tensor(x, job["dtype"], fmt) for x in enter(layer, op, "NCX", operands)]
    call = contraction(layer, op, fmt, like=arrays[0])
    if layer.members > 1:
        call = torch.func.vmap(call)
    return _timed(lambda: call(*arrays), lambda y: [leave(layer, op, "NCX", _numpy(y))])


def contraction(layer: Layer, op: str, fmt: torch.memory_format, like: torch.Tensor) -> Callable:
    """`op` as a function of its two operands, only the asked gradient computed."""
    padding, output_padding, around = _padding(layer)
    transposed = layer.family == "deconv"
    attributes = (layer.strides, padding, layer.dilations, transposed, output_padding, layer.groups)
    *operands, result = layer.slots(op)

    def pad(x: torch.Tensor, slot: str, sign: int = 1) -> torch.Tensor:
        by_hand = slot == "fine" and any(around)
        return F.pad(x, [sign * n for n in around]) if by_hand else x

    # What a gradient is of: only shape and format are read; uninitialised, it costs nothing.
    *_, shape = shapes_in(layer, op, "NCX")
    unread = torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=fmt)
    unread = pad(unread, result)
    backward = torch.ops.aten.convolution_backward

    def compute(first, second):
        x, y = map(pad, (first, second), operands)
        if op == "forward":
            out = torch.convolution(x, y, None, *attributes)
        elif op == "data":
            mask = [True, False, False]
            out, _, _ = backward(x, unread, y, None, *attributes, mask)
        else:
            mask = [False, True, False]
            _, out, _ = backward(y, x, unread, None, *attributes, mask)
        return pad(out, result, -1)

    return compute


def _padding(layer: Layer) -> tuple[Sequence[int], Sequence[int], list[int]]:
    """(padding, output_padding, pads to add by hand in F.pad's order).

    PyTorch pads both ends alike; what is left over at the high end is implied by the sizes
    (and is the output padding of a transposed convolution) if it is less than a stride.
    """
    pairs, none = list(zip(layer.pads_begin, layer.pads_end, strict=True)), [0] * layer.rank
    left_over = [begin - end for begin, end in pairs]
    if all(0 <= o < s for o, s in zip(left_over, layer.strides, strict=True)):
        return layer.pads_begin, left_over if layer.family == "deconv" else none, []
    return none, none, [p for pair in reversed(pairs) for p in pair]


def _network(job: dict, operands: list[np.ndarray], fmt: str, compiling: bool) -> Timed:
    name, training, tensors = job["network"], job["kind"] == "step", []
    for n, x in enumerate(operands):
        kernel = n >= len(networks.NETWORKS[name].data)
        own = _formats(x.ndim - 2).get(fmt)  # channels_last has two names, and no third
        tensors.append(_tensor(to_layout(x, "NCX", kernel) if x.ndim > 2 else x, job["dtype"], own))
    call = step(name, tensors) if training else forward(name, tensors, compiling)

    def fetch(outputs: list[torch.Tensor]) -> list[np.ndarray]:
        arrays = [_numpy(y) for y in outputs]
        return [from_layout(x, "NCX", kernel=training) if x.ndim > 2 else x for x in arrays]

    return _timed(call, fetch)


def _timed(call: Callable, fetch: Callable) -> Timed:
    wait = torch.cuda.synchronize if torch.cuda.is_available() else (lambda: None)
    return Timed(call, lambda y: wait(), fetch)


def _tensor(x: np.ndarray, dtype: str, fmt: torch.memory_format | None) -> torch.Tensor:
    tensor = torch.from_numpy(x).to(getattr(torch, DTYPES[dtype]))
    if torch.cuda.is_available():
        tensor = tensor.cuda()
    return tensor if fmt is None else tensor.contiguous(memory_format=fmt)


def _numpy(y: torch.Tensor) -> np.ndarray:
    return y.detach().to(torch.float64 if y.dtype == torch.float64 else torch.float32).cpu().numpy()


def step(name: str, operands: list[torch.Tensor]) -> Callable:
    """A call that gives the loss, and the parameters after one SGD step."""
    network = networks.NETWORKS[name]
    data, changing, frozen = network.split(operands)
    for p in changing:
        p.requires_grad_(True)

    def call() -> list[torch.Tensor]:
        loss = network.evaluate(Ops(), data, [*changing, *frozen])
        gradients = torch.autograd.grad(loss, changing)
        with torch.no_grad():
            stepped = torch._foreach_add(changing, gradients, alpha=-networks.LEARNING_RATE)
        return [loss.detach(), *stepped]

    return call


def forward(name: str, operands: list[torch.Tensor], compiling: bool) -> Callable:
    """A call that gives the logits, in a list of one; compiled, it has run once."""
    images, *parameters = operands
    network = Network(name, parameters).eval()
    if compiling:
        from torch._inductor import config

        config.freezing = True  # weights are constants, which oneDNN packs once
        torch.compiler.reset()  # a network is compiled for each batch, and any number of them
        network = torch.compile(network, fullgraph=True, dynamic=False)

    @torch.inference_mode()
    def call() -> list[torch.Tensor]:
        return [network(images)]

    if compiling:
        call()
    return call


class Network(torch.nn.Module):
    """A network whose parameters are the module's own, as freezing asks."""

    def __init__(self, name: str, parameters: list[torch.Tensor]):
        super().__init__()
        self.name = name
        frozen = (torch.nn.Parameter(x, requires_grad=False) for x in parameters)
        self.own = torch.nn.ParameterList(frozen)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return networks.NETWORKS[self.name].evaluate(Ops(), [images], list(self.own))


class Ops:
    """What networks ask of an engine; what a `finished` convolution makes is overwritten."""

    def conv(self, x, w, family, stride, pads, groups, b=None):
        name = f"conv{'_transpose' if family == 'deconv' else ''}{x.ndim - 2}d"
        return getattr(F, name)(x, w, b, stride, pads, groups=groups)

    def finished(self, x, w, b, family, stride, pads, groups, activation, residual):
        y = self.conv(x, w, family, stride, pads, groups, b)
        y = y if residual is None else y.add_(residual)
        if activation == "sigmoid":  # of which F has none in place
            return y.sigmoid_()
        return getattr(F, activation)(y, inplace=True) if activation else y

    def norm(self, x, scale, shift):
        return F.batch_norm(x, None, None, scale, shift, training=True)

    def activate(self, x, name):
        return getattr(F, name)(x)

    def concat(self, x, y):
        return torch.cat((x, y), dim=1)

    def max_pool(self, x, k=2, s=2, pad=0):
        return F.max_pool2d(x, k, s, pad)

    def flatten(self, x):
        return x.permute(0, 2, 3, 1).flatten(1)

    def mean(self, x, keep=False):
        return x.mean(tuple(range(2, x.ndim)), keepdim=keep)

    def linear(self, x, w, b):
        return torch.addmm(b, x, w)

    def cross_entropy(self, logits, labels):
        return -(F.log_softmax(_wide(logits), dim=1) * _wide(labels)).sum(1).mean()

    def logistic_loss(self, logits, target):
        return F.softplus((1.0 - 2.0 * target) * _wide(logits)).mean()


def _wide(x: torch.Tensor) -> torch.Tensor:
    """At least f32, for what would lose too much in 16 bits."""
    return x.float() if x.element_size() < 4 else x
