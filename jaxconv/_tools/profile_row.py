"""A row of `profile`'s report: convolutions that were lowered in the same way."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from jax import lax

from jaxconv._base.geometry import Slot
from jaxconv._base.listeners import Lowered
from jaxconv._contract.contractions import SLOTS
from jaxconv._tools.flops import count_flops
from jaxconv._tools.log import Origin, describe


@dataclass(frozen=True)
class Row:
    """Convolutions of one kind; see `jaxconv.profile`."""

    #: how often JAX lowered one: a jitted function or a loop within a program is lowered once
    count: int
    #: "lax", or "jaxconv" for its operations and `jaxconv.lax`
    written_by: str
    #: the types of the operands and of the result, as lax or the contraction has them
    operands: str
    result: str
    #: strides, dilations and groups other than 1
    window: str
    #: the slot that the contraction fills, "pool" for a max pool's gradient; None for what stays
    #: with lax
    to: Slot | Literal["pool"] | None
    #: the forms that compute it, the outermost first; "lax" for what stays with it
    form: str
    #: the reasons for the forms, or why it stays with lax
    why: str
    #: multiplications and additions of one, 0 for a pool; None for symbolic extents
    flops: int | None
    #: over how many devices XLA splits it
    devices: int
    #: the innermost lines of a user's own code, or else of a library's
    lines: tuple[str, ...]
    #: the functions and scopes around it, where JAX knows them
    names: tuple[str, ...]

    @property
    def how(self) -> str:
        """What computes it and why, in words."""
        return self.why if self.to else f"stays with lax: {self.why}"

    @property
    def work(self) -> int:
        """Multiplications and additions of all of them, as far as they are known."""
        return self.count * (self.flops or 0)


@dataclass
class Kind:
    """Convolutions that were lowered in the same way: the first, and where each was written."""

    lowered: Lowered
    origins: list[Origin] = field(default_factory=list)

    @cached_property
    def flops(self) -> int | None:
        """Multiplications and additions of one."""
        return count_flops(self.lowered)

    @property
    def row(self) -> Row:
        """The row of all until now."""
        equation, contraction, how, devices, _ = self.lowered
        by_lax = equation.primitive in (lax.conv_general_dilated_p, lax.select_and_scatter_add_p)
        forms = ["lax"] if isinstance(how, str) else list(dict.fromkeys(form for form, _ in how))
        origins = tuple(self.origins)
        return Row(
            count=len(origins),
            written_by="lax" if by_lax else "jaxconv",
            operands=" ".join(t.str_short() for t in equation.operands[:2]),
            result=equation.results[0].str_short(),
            window=_describe_window(equation.params),
            to=SLOTS.get(contraction.primitive, "pool") if contraction else None,
            form=", ".join(forms),
            why=how if isinstance(how, str) else describe(how),
            flops=self.flops,
            devices=devices,
            lines=tuple(dict.fromkeys(origin.line for origin in origins)),
            names=tuple(dict.fromkeys(origin.names for origin in origins if origin.names)),
        )


def _describe_window(params: dict[str, Any]) -> str:
    """Name strides, dilations and groups other than 1, of lax's parameters or a contraction's."""
    if geometry := params.get("geometry"):
        named = {
            "stride": [a.stride for a in geometry.axes],
            "dilation": [a.dilation for a in geometry.axes],
            "groups": [geometry.groups],
        }
    elif window := params.get("window_dimensions"):
        named = {"window": window, "stride": params["window_strides"]}
    else:
        named = {
            "stride": params["window_strides"],
            "lhs_dilation": params["lhs_dilation"],
            "rhs_dilation": params["rhs_dilation"],
            "groups": [params["feature_group_count"]],
            "batch groups": [params["batch_group_count"]],
        }
    words = (
        f"{name} {'x'.join(map(str, values if len(set(values)) > 1 else values[:1]))}"
        for name, values in named.items()
        if set(values) - {1}
    )
    return ", ".join(words)
