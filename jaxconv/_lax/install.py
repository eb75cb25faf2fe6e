"""`install`: compute lax's convolutions, whoever calls them, by the contractions of this library.

One hook reaches every library on JAX, since all their convolutions are one primitive. `install`
replaces its lowering on a platform. JAX's rules to trace, differentiate, batch and type it stay.
"""

import atexit
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import jax
from jax import Array, lax

import jaxconv
from jaxconv._base import dtypes, lowerings, meshes
from jaxconv._base.contexts import CHOICE, INSTALLED
from jaxconv._base.geometry import OPERANDS
from jaxconv._base.jax_names import (
    Equation,
    count_spmd_devices,
    find_lowering_rule,
    find_step_being_lowered,
    is_lowered_for_export,
    mlir,
    operand_and_result_avals,
    set_globally,
    skip_lowering_cache,
    walk_equations,
)
from jaxconv._base.messages import either, shown
from jaxconv._contract.contractions import plan_in
from jaxconv._lax.from_lax import Mapped, as_contraction, compute
from jaxconv._lax.interior import see_through

#: Why a convolution stays with lax though it may have a contraction.
NOT_INSTALLED = "jaxconv.install() does not hold"
FASTER = "lax is faster: a weights gradient from one channel to one"

#: What each platform that can be asked for is to JAX.
PLATFORMS = {"cpu": ("cpu",), "gpu": ("cuda", "rocm"), "tpu": ("tpu",)}


def install(
    platform: str = "cpu",
    *,
    only: str | Sequence[str] | None = None,
    without: str | Sequence[str] | None = None,
) -> None:
    """Compute every convolution of `jax.lax` by this library from here on.

    Flax, Equinox, Haiku, Keras, `jax.numpy.convolve`, `jax.scipy.signal` and JAX's own derivatives
    call these convolutions. Models and their jaxprs stay as they are; what changes is how their
    convolutions are compiled. JAX compiles functions again, in all threads. After
    :func:`uninstall` it finds the programs that it had compiled before.

    These stay with lax: integers, 8-bit floats and complex numbers (except the three real
    convolutions that lax makes of a complex one), no spatial axis, empty operands, a stride
    together with lhs_dilation, symbolic extents other than the batch, dot algorithms as
    `precision`, and, because lax is faster, weights gradients from one channel to one.
    :func:`jaxconv.explain_jaxpr` lists how the convolutions of a program are computed.

    Another call replaces the one before.

    Args:
      platform: "cpu", "gpu" or "tpu", where this holds; elsewhere lax's convolutions stay as they
        are, also in a program that is exported for several platforms. No GPU or TPU has run these
        forms: XLA's compilers judged them, without a device, and `python -m jaxconv --selftest`
        checks values on yours.
      only, without: names of contractions or of forms, one or several, to find out by halves what
        is to blame for a suspicion. A contraction is named by the slot that it fills: "coarse" (a
        convolution, or a data gradient of stride 1), "fine" (a transposed convolution, or another
        data gradient) or "kernel" (a weights gradient); a form as :func:`profile` shows it,
        "onednn" say. Convolutions stay with lax unless one of their names is in `only`, and where
        one is in `without`.

    Raises:
      ValueError: another platform, or an unknown name.

    Example:
      >>> import jax, jax.numpy as jnp, jaxconv
      >>> jaxconv.install()
      >>> jnp.convolve(jnp.array([1.0, 2.0, 4.0]), jnp.array([1.0, 10.0])).tolist()
      [1.0, 12.0, 24.0, 40.0]
      >>> jaxconv.uninstall()
    """
    if platform not in [*PLATFORMS]:  # a list, for what has no hash
        known = either(map(repr, PLATFORMS))
        raise ValueError(f"install: `platform` must be {known}; got {shown(platform)}")
    choice = _names("only", only), _names("without", without)
    register(platform)
    set_globally(CHOICE, choice)
    set_globally(INSTALLED, platform)


def enabled() -> bool:
    """Whether :func:`install` or :func:`installed` holds here, in this thread.

    Example:
      >>> import jaxconv
      >>> with jaxconv.installed():
      ...     jaxconv.enabled()
      True
    """
    return bool(INSTALLED.value)


def install_as_told(told: str) -> None:
    """What importing the package does with JAXCONV_INSTALL, if it is not 0.

    The programs that are profiled end before the report is printed, on stderr.
    """
    if told == "profile":
        profiling = jaxconv.profile()
        report = profiling.__enter__()
        atexit.register(lambda: print(report, file=sys.stderr))  # the stderr of then: pytest's ends
        atexit.register(profiling.__exit__, None, None, None)  # is called before
    install()


def uninstall() -> None:
    """Undo :func:`install`: lax's convolutions are lowered as JAX does it.

    Example:
      >>> import jaxconv
      >>> jaxconv.uninstall()
    """
    set_globally(INSTALLED, False)
    set_globally(CHOICE, (None, None))


def installed(yes: bool = True) -> AbstractContextManager[Any]:
    """A context within which :func:`install` holds on CPU, or nowhere, in this thread alone.

    JAX compiles a jitted function once for calls inside, and once for calls outside.

    Args:
      yes: False for a context in which :func:`install` does not hold.

    Example:
      >>> import jax, jax.numpy as jnp, jaxconv
      >>> with jaxconv.installed():
      ...     jnp.convolve(jnp.array([1.0, 2.0, 4.0]), jnp.array([1.0, 10.0])).tolist()
      [1.0, 12.0, 24.0, 40.0]
    """
    register()
    context: AbstractContextManager[Any] = INSTALLED("cpu" if yes else False)
    return context


def to_install(
    convolution: Equation, platform: str = "cpu", *, devices: int = 1, exported: bool = False
) -> Mapped | str:
    """The contraction that replaces a convolution of lax's, or why none does."""
    _, operands, (result,), params = convolution
    found = as_contraction(operands, result, **params)
    if isinstance(found, str):
        return found
    if platform == "cpu" and not _gains(found, convolution):
        return FASTER
    only, without = CHOICE.value
    names: set[str] = {found.result}
    if {*(only or ()), *(without or ())} - {*OPERANDS}:  # forms, which take a plan to know
        program = jax.make_jaxpr(partial(compute, found, params, result.dtype))(*operands)
        plans = (
            plan_in(e, platform, devices=devices, exported=exported)
            for e in walk_equations(program)
        )
        names |= {form for plan in plans if plan for form, _ in plan.steps()}
    if only is not None and not names & {*only}:
        return f"left out by install(only={', '.join(only)})"
    if without is not None and names & {*without}:
        return f"left out by install(without={', '.join(without)})"
    return found


def _names(argument: str, given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """The names that `install` was given; None for all."""
    if given is None:
        return None
    from jaxconv._lowering import FORMS  # half of the package

    known = (*OPERANDS, *FORMS)
    names = (given,) if isinstance(given, str) else given
    if not (isinstance(names, Sequence) and names and all(name in known for name in names)):
        raise ValueError(
            f"install: `{argument}` must be one or several of {either(known)}; got {shown(given)}"
        )
    return tuple(names)


def _gains(found: Mapped, convolution: Equation) -> bool:
    """Whether the library, and not lax, should compute a convolution.

    Weights gradients from one channel to one, as in `jax.numpy.convolve`, took 1.0 to 3.5 times
    lax's time on two AVX-512 cores. They stay with lax unless it would crop: XLA:CPU may then
    compute with what lies beyond the data (see `_lowering/forms/reference.py`).
    """
    specs = zip(convolution.operands, convolution.params["dimension_numbers"], strict=False)
    one_to_one = all(operand.shape[spec[0]] == 1 for operand, spec in specs)
    crops = any(axis.pad_low < 0 for axis in found.geometry.axes)
    return found.result != "kernel" or not one_to_one or crops


def _lower(ctx: Any, lhs: Any, rhs: Any, *, original: Any, platform: str, **params: Any) -> Any:
    """The lowering rule of lax's convolution on a platform."""
    operands, (result,) = operand_and_result_avals(ctx)
    devices, heard = count_spmd_devices(ctx), lowerings.heard(ctx)
    equation = Equation(lax.conv_general_dilated_p, operands, [result], params)
    found: Mapped | str = NOT_INSTALLED
    view = None
    if INSTALLED.value == platform:
        program: dict[str, Any] = {"devices": devices, "exported": is_lowered_for_export(ctx)}
        # Elsewhere nobody has measured, and a slice of an axis that is split would move data.
        if platform == "cpu" and devices == 1 and meshes.explicit(result) is None:
            step = find_step_being_lowered(ctx, params)
            view = see_through(*step) if step else None
        if view:
            found = to_install(view.equation, platform, **program)
        if isinstance(found, str):
            view, found = None, to_install(equation, platform, **program)
    if isinstance(found, str):
        if heard:
            lowerings.tell(equation, found, devices)
        return original(ctx, lhs, rhs, **params)
    if view:
        skip_lowering_cache(ctx)
        equation = view.equation
    dtype, sharding = dtypes.canonical(result.dtype), meshes.explicit(result)
    ours: Callable[..., Array] = partial(compute, found, equation.params, dtype, sharding=sharding)
    with lowerings.of_lax(equation):
        ours = view.around(ours) if view else ours
        return mlir.lower_fun(ours, multiple_results=False)(ctx, lhs, rhs)


def register(platform: str = "cpu") -> None:
    """Put the rule in JAX's table, once; it falls back on the rule that was there."""
    for name in PLATFORMS[platform]:
        original = find_lowering_rule(lax.conv_general_dilated_p, name)
        if not (isinstance(original, partial) and original.func is _lower):
            rule = partial(_lower, original=original, platform=platform)
            mlir.register_lowering(lax.conv_general_dilated_p, rule, platform=name)
