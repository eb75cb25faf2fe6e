"""Random layers of PyTorch, called there and by `jaxconv.torch`."""

from typing import Any, NamedTuple

from jaxconv import torch as ours
from tests.support.peers import peer

torch = peer("torch")
F = torch.nn.functional


class Layer(NamedTuple):
    """A call of a function by its name, with the sizes of its tensors."""

    name: str
    input: tuple
    weight: tuple
    bias: tuple | None
    arguments: dict
    padding_mode: str = "zeros"

    @property
    def transposed(self):
        return "transpose" in self.name

    def ours(self, x, w, b=None):
        mode = {} if self.padding_mode == "zeros" else {"padding_mode": self.padding_mode}
        return getattr(ours, self.name)(x, w, b, **self.arguments, **mode)

    def theirs(self, x, w, b=None):
        """The function, or the module where there is a padding mode."""
        if self.padding_mode == "zeros":
            return getattr(F, self.name)(x, w, b, **self.arguments)
        make, (out, into, *kernel) = getattr(torch.nn, self.name.capitalize()), self.weight
        into *= self.arguments.get("groups", 1)
        mode = {"bias": b is not None, "padding_mode": self.padding_mode}
        module = make(into, out, tuple(kernel), **self.arguments, **mode)
        tensors = {"weight": w} | ({} if b is None else {"bias": b})
        return torch.func.functional_call(module, tensors, (x,))


def draw_layer(rng, *, name=None, mode=None, strings=True):
    """Sizes and arguments of a layer that PyTorch takes."""

    def each(least, most):
        """An int, or one for each axis, or one in a list."""
        ints = tuple(int(n) for n in rng.integers(least, most, rank, endpoint=True))
        return [ints, ints[0], ints[:1]][rng.choice(3, p=(0.6, 0.3, 0.1))]

    def spread(value):
        return (value,) * rank if isinstance(value, int) else tuple(value) * (rank // len(value))

    rank = int(name[-2]) if name else int(rng.choice([1, 2, 2, 3]))
    transposed = "transpose" in name if name else rng.random() < 0.4
    groups = int(rng.choice([1, 1, 2, 3]))
    into, out = (groups * int(n) for n in rng.integers(1, 3, 2, endpoint=True))
    kernel = tuple(int(n) for n in rng.integers(1, 4, rank, endpoint=True))
    stride, dilation = each(1, 3), each(1, 3)
    mode = mode or ("zeros" if transposed else str(rng.choice([*["zeros"] * 9, *MODES])))
    reach = [d * (k - 1) for d, k in zip(spread(dilation), kernel, strict=True)]
    padding: Any = each(0, 2)
    if transposed:
        pads = spread(padding)
        extents = [
            int(rng.integers(1, 5)) + -(-max(2 * p - r, 0) // s)
            for r, p, s in zip(reach, pads, spread(stride), strict=True)
        ]
    else:
        if strings and rng.random() < 0.3:
            padding = str(rng.choice(["valid", "same"]))
        pads = {"valid": (0,) * rank, "same": [r // 2 for r in reach]}.get(padding)
        stride = 1 if padding == "same" else stride
        pads = pads or spread(padding)
        extents = [
            max(r + 1 - 2 * p, p + 2, (r + 1) // 2 + 1) + int(rng.integers(4))
            for r, p in zip(reach, pads, strict=True)
        ]
    if mode != "zeros":  # PyTorch's modules do not know (1,), though its functions do
        stride, dilation = spread(stride), spread(dilation)
        padding = padding if isinstance(padding, str) else spread(padding)
    arguments = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    if transposed:
        most = [max(s, d) for s, d in zip(spread(stride), spread(dilation), strict=True)]
        arguments["output_padding"] = tuple(int(rng.integers(n)) for n in most)
    if rng.random() < 0.2:
        arguments = {n: v for n, v in arguments.items() if v != (n != "padding")}
    batch = [(int(rng.integers(1, 3)),), ()][rng.random() < 0.25]
    weight = (into, out // groups) if transposed else (out, into // groups)
    return Layer(
        f"conv{'_transpose' * transposed}{rank}d",
        (*batch, into, *extents),
        (*weight, *kernel),
        (out,) if rng.random() < 0.5 else None,
        arguments,
        mode,
    )


#: The functions.
EVERY = [f"conv{kind}{rank}d" for kind in ("", "_transpose") for rank in (1, 2, 3)]
MODES = ["reflect", "replicate", "circular"]
