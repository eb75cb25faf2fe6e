"""Random calls of PyTorch's functions, made there and by `jaxconv.torch`."""

from dataclasses import replace
from typing import NamedTuple

from jaxconv import torch as ours
from tests.support import small
from tests.support.peers import peer

torch = peer("torch")
F = torch.nn.functional

#: The functions.
EVERY = [f"conv{kind}{rank}d" for kind in ("", "_transpose") for rank in (1, 2, 3)]
MODES = ["reflect", "replicate", "circular"]


class Call(NamedTuple):
    """A function by its name, with the sizes of its tensors."""

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


def draw_call(rng, *, name=None, mode=None):
    """One that PyTorch takes, of arguments that it may spell in several ways."""
    name = name or str(rng.choice(EVERY))
    transposed, rank = "transpose" in name, int(name[-2])
    mode = mode or ("zeros" if transposed else str(rng.choice([*["zeros"] * 9, *MODES])))
    padding = None
    if not transposed and rng.random() < 0.3:
        padding = str(rng.choice(["valid", "same"]))
    while True:
        [form] = small.draw(int(rng.integers(2**31)), 1, (rank,), most_channels=3)
        pads = tuple(map(max, form.pads_begin, form.pads_end))  # alike at both ends of an axis
        form = replace(form, pads_begin=pads, pads_end=pads, formats=("NCX", "OIX"))
        if padding == "same":
            form = replace(form, strides=(1,) * rank)
        reach = [extent - 1 for extent in form.extents]
        most = {"valid": [0] * rank, "same": [r - r // 2 for r in reach]}.get(padding)
        most = most or form.pads_begin
        enough = padding != "valid" or all(f > r for f, r in zip(form.fine, reach, strict=True))
        # What a mode pads with is there.
        if enough and (mode == "zeros" or all(f > p for f, p in zip(form.fine, most, strict=True))):
            break

    def spelled(ints):
        """An int for all axes, or one in a list, or an int for each axis."""
        alike = [ints[0], ints[:1]] if len(set(ints)) == 1 and mode == "zeros" else []
        return [*alike, ints][rng.integers(len(alike) + 1)]

    arguments = {
        "stride": spelled(form.strides), "padding": padding or spelled(form.pads_begin),
        "dilation": spelled(form.dilations), "groups": form.groups,
    }  # fmt: skip
    if transposed:
        arguments["output_padding"] = spelled(form.output_padding)
    defaults = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "output_padding": 0}
    arguments = {n: v for n, v in arguments.items() if v != defaults[n] or rng.random() < 0.5}
    source, result = ("coarse", "fine") if transposed else ("fine", "coarse")
    batched = rng.random() < 0.75
    bias = (form.shapes[result][1],) if rng.random() < 0.5 else None
    sizes = form.shapes[source][0 if batched else 1 :], form.shapes["kernel"]
    return Call(name, *sizes, bias, arguments, mode)
