"""`install`: compute lax's convolutions, whoever calls them, by the contractions of this library.

One hook reaches every library on JAX, since all their convolutions are one primitive. `install`
replaces its lowering on a platform, and on CPU that of the gradient of a max pool. JAX's rules to
trace, differentiate, batch and type it stay.
"""

import atexit
import itertools
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

from jax import Array, lax
from jax.sharding import NamedSharding

import jaxconv
from jaxconv._base import dtypes, environment, jax_names, meshes
from jaxconv._base.environment import FORCED, INSTALLED, Lowered, Target
from jaxconv._base.messages import either, shown
from jaxconv._lax import max_pool
from jaxconv._lax.from_lax import Mapped, as_contraction, compute
from jaxconv._lax.max_pool import MaxPool

#: Why a convolution stays with lax though it may have a contraction.
NOT_INSTALLED = "jaxconv.install() does not hold"
FASTER = "lax is faster: a weights gradient from one channel to one"
EIGHT_BITS_ELSEWHERE = "8-bit integers, which are taken over on CPU alone"

#: A platform that can be asked for -> JAX's names for it.
JAX_PLATFORMS = {"cpu": ("cpu",), "gpu": ("cuda", "rocm"), "tpu": ("tpu",)}


#: A slot that a convolution fills, or "pool" -> the direction, in the user's words. lax writes a
#: transposed convolution like a data gradient, and one of stride 1 like a forward convolution.
DIRECTIONS = {
    "coarse": "forward",
    "fine": "data gradient",
    "kernel": "weights gradient",
    "pool": "max pool gradient",
}


class Scope(NamedTuple):
    """What `install` takes over: the value of the context `INSTALLED`, where it holds."""

    platform: str
    #: directions that are taken over alone, and directions that are left to lax
    only: tuple[str, ...] = tuple(DIRECTIONS.values())
    without: tuple[str, ...] = ()

    def why_leave(self, slot: str) -> str:
        """Why a contraction into a slot is left to lax; empty if it is not."""
        if DIRECTIONS[slot] not in self.only:
            return f"left out by install(only={list(self.only)})"
        if DIRECTIONS[slot] in self.without:
            return f"left out by install(without={list(self.without)})"
        return ""


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

    These stay with lax: integers (except, on CPU, forward convolutions of 8-bit integers summed in
    int32), 8-bit floats and complex numbers (except the three real convolutions that lax makes of a
    complex one), no spatial axis, empty operands (except for the batch), lhs_dilation together with
    a stride or a weights gradient's rhs_dilation, symbolic extents other than the batch, dot
    algorithms as `precision`, and, on CPU, where lax is faster, weights gradients from one channel
    to one.
    :func:`jaxconv.explain` lists how the convolutions of a program are computed.

    On CPU, gradients of max pools are taken over as well, since XLA computes them one element at a
    time: of float32, float64, bfloat16 and float16, on one device, unless a program is exported.

    Another call replaces the one before.

    A convolution that this function cannot compute, by an error of its own, is computed by lax,
    and one warning says so; JAXCONV_STRICT=1 in the environment, or a form that is forced by name,
    raises the error instead.
    JAXCONV_ONEDNN=0 leaves oneDNN out.

    Args:
      platform: "cpu", "gpu" or "tpu", where this holds; elsewhere lax's convolutions stay as they
        are, also in a program that is exported for several platforms. No GPU or TPU has run these
        forms: XLA's compilers judged them, without a device, and `python -m jaxconv --selftest`
        checks values on yours.
      only, without: directions, one or several, to find out by halves what is to blame for a
        suspicion: "forward", "data gradient", "weights gradient", "max pool gradient". What is not
        of the directions in `only` stays with lax, and what is of those in `without`. lax writes a
        data gradient of stride 1 like a forward convolution, and a transposed convolution like
        another data gradient: these count as what they are written like.

    Raises:
      ValueError: another platform, an unknown name, or no direction that is left.

    Example:
      >>> import jax, jax.numpy as jnp, jaxconv
      >>> jaxconv.install()
      >>> jnp.convolve(jnp.array([1.0, 2.0, 4.0]), jnp.array([1.0, 10.0])).tolist()
      [1.0, 12.0, 24.0, 40.0]
      >>> jaxconv.uninstall()
    """
    if not (isinstance(platform, str) and platform in JAX_PLATFORMS):
        known = either(map(repr, JAX_PLATFORMS))
        raise ValueError(f"install: `platform` must be {known}; got {shown(platform)}")
    given = {"only": only, "without": without}
    chosen = {n: _parse_directions(n, names) for n, names in given.items() if names is not None}
    scope = Scope(platform, **chosen)
    if not {*scope.only} - {*scope.without}:
        got = f"only={shown(only)} and without={shown(without)}"
        raise ValueError(f"install: `only` and `without` must leave a direction; got {got}")
    register(platform)
    jax_names.set_globally(INSTALLED, scope)


def enabled() -> bool:
    """Whether :func:`install` or :func:`installed` holds here, in this thread.

    Example:
      >>> import jaxconv
      >>> with jaxconv.installed():
      ...     jaxconv.enabled()
      True
    """
    return bool(INSTALLED.value)


def install_as_told(mode: str) -> None:
    """What importing the package does with JAXCONV_INSTALL, if it is not 0.

    The mode "profile" also prints a report to stderr at exit.
    """
    if mode == "profile":
        profiling = jaxconv.profile()
        report = profiling.__enter__()

        def report_at_exit() -> None:
            profiling.__exit__(None, None, None)
            if sys.stderr:  # that of then: pytest's ends
                print(report, file=sys.stderr)

        atexit.register(report_at_exit)
    install()


def uninstall() -> None:
    """Undo :func:`install`: lax's convolutions are lowered as JAX does it.

    Example:
      >>> import jaxconv
      >>> jaxconv.uninstall()
    """
    jax_names.set_globally(INSTALLED, False)


def installed(yes: bool = True) -> AbstractContextManager[Any]:
    """A context within which :func:`install` holds on CPU, or nowhere, in this thread alone.

    It takes over all directions, whatever `install` was given. JAX compiles a jitted function once
    for calls inside, and once for calls outside. Inside of a jitted function it changes nothing.

    Args:
      yes: False for a context in which :func:`install` does not hold.

    Raises:
      TypeError: `yes` is no bool.

    Example:
      >>> import jax, jax.numpy as jnp, jaxconv
      >>> with jaxconv.installed():
      ...     jnp.convolve(jnp.array([1.0, 2.0, 4.0]), jnp.array([1.0, 10.0])).tolist()
      [1.0, 12.0, 24.0, 40.0]
    """
    if not isinstance(yes, bool):
        remedy = "jaxconv.install(platform) holds elsewhere than on CPU"
        raise TypeError(f"installed: `yes` must be True or False; got {shown(yes)}. {remedy}")
    register()
    context: AbstractContextManager[Any] = INSTALLED(Scope("cpu") if yes else False)
    return context


def find_mapped(
    equation: jax_names.Equation, scope: Scope, target: Target
) -> tuple[Mapped | MaxPool | None, str]:
    """Find the contraction or max pool that a primitive of lax's is, if any; and why lax keeps it.

    What has a contraction may be kept, too. The reason is empty if the library takes it over.
    """
    primitive, operands, (result,), params = equation
    mapped: Mapped | MaxPool | str
    if primitive is max_pool.PRIMITIVE:
        mapped = max_pool.as_max_pool(operands, **params)
    else:
        mapped = as_contraction(operands, result, **params)
    if isinstance(mapped, str):
        return None, mapped
    if isinstance(mapped, MaxPool):
        alone = target.alone and meshes.explicit(result) is None
        return mapped, scope.why_leave("pool") if alone else max_pool.ONE_DEVICE
    if scope.platform == "cpu" and _lax_is_faster(mapped, equation):
        return mapped, FASTER
    if scope.platform != "cpu" and operands[0].dtype in dtypes.EIGHT_BITS:
        return mapped, EIGHT_BITS_ELSEWHERE
    return mapped, scope.why_leave(mapped.result)


def bind_mapped(
    mapped: Mapped | MaxPool, equation: jax_names.Equation, sharding: NamedSharding | None = None
) -> Callable[..., Array]:
    """Make the function of the operands that computes a primitive of lax's."""
    if isinstance(mapped, MaxPool):
        return partial(max_pool.compute, mapped)
    dtype = equation.results[0].dtype
    return partial(compute, mapped, equation.params, dtype, sharding=sharding)


def _parse_directions(argument: str, value: str | Sequence[str]) -> tuple[str, ...]:
    """The directions that `install` was given, in one order."""
    names, known = (value,) if isinstance(value, str) else value, [*DIRECTIONS.values()]
    if not (isinstance(names, Sequence) and names and all(name in known for name in names)):
        raise ValueError(
            f"install: `{argument}` must be one or several of {either(map(repr, known))}; "
            f"got {shown(value)}"
        )
    return tuple(name for name in known if name in names)


def _lax_is_faster(mapped: Mapped, convolution: jax_names.Equation) -> bool:
    """Whether lax, and not the library, should compute a convolution.

    Weights gradients from one channel to one, as in `jax.numpy.convolve`, took 1.0 to 3.5 times
    lax's time on two AVX-512 cores. They stay with lax unless it would crop: XLA:CPU may then
    compute with what lies beyond the data (see `_lowering/forms/reference.py`).
    """
    specs = zip(convolution.operands, convolution.params["dimension_numbers"], strict=False)
    one_to_one = all(operand.shape[spec[0]] == 1 for operand, spec in specs)
    crops = any(axis.pad_low < 0 for axis in mapped.geometry.axes)
    return mapped.result == "kernel" and one_to_one and not crops


def _take_over(
    ctx: Any, values: Sequence[Any], equation: jax_names.Equation, mapped: Mapped | MaxPool
) -> Any:
    """Lower a primitive of lax's by what it was mapped to, and tell of it once that is done."""
    function = bind_mapped(mapped, equation, meshes.explicit(equation.results[0]))
    with environment.collect() as told:
        out = jax_names.lower_or_leave_nothing(function, ctx, *values)
    if isinstance(mapped, MaxPool):
        told.append(Lowered(equation, equation, max_pool.STEPS, Target("cpu")))
    for lowered in told:
        environment.tell(lowered._replace(equation=equation, mapped=mapped))
    return out


def _lower(
    ctx: Any, *values: Any, original: Any, platform: str, primitive: Any, **params: Any
) -> Any:
    """The lowering rule of a primitive of lax's on a platform."""
    operands, (result,) = jax_names.operand_and_result_avals(ctx)
    equation = jax_names.Equation(primitive, operands, [result], params)
    listened, scope = environment.prepare(ctx), INSTALLED.value
    mapped: Mapped | MaxPool | None = None
    reason = f"{NOT_INSTALLED} on this platform" if scope else NOT_INSTALLED
    if scope and scope.platform == platform:
        try:
            mapped, reason = find_mapped(equation, scope, Target.of(platform, ctx))
            if mapped and not reason:
                return _take_over(ctx, values, equation, mapped)
        except UserWarning:  # ours, which a filter made an error
            raise
        except Exception as error:
            asked = isinstance(FORCED.value, str)  # for a form that cannot compute this, say
            if asked or environment.read("JAXCONV_STRICT", ("0", "1")) == "1":
                raise
            reason = f"jaxconv failed with {type(error).__name__}: {error}"
            _warn_of_failure(reason)
    if listened:
        environment.tell(Lowered(equation, None, reason, Target.of(platform, ctx), mapped))
    return original(ctx, *values, **params)


#: The first failure that a user was warned of.
_FAILURES: list[str] = []


def _warn_of_failure(reason: str) -> None:
    """Warn of the first failure of this process; `profile` and the log have all."""
    if not _FAILURES:
        _FAILURES.append(reason)
        warnings.warn(
            f"{reason}\nlax computes it instead. Please report this to the "
            "developers of jaxconv; JAXCONV_STRICT=1 shows the whole error.",
            stacklevel=2,
        )


def register(platform: str = "cpu") -> None:
    """Put the rule in JAX's table, once; it falls back on the rule that was there."""
    primitives = [lax.conv_general_dilated_p, *([max_pool.PRIMITIVE] if platform == "cpu" else [])]
    for primitive, name in itertools.product(primitives, JAX_PLATFORMS[platform]):
        original = jax_names.find_lowering_rule(primitive, name)
        if not (isinstance(original, partial) and original.func is _lower):
            rule = partial(_lower, original=original, platform=platform, primitive=primitive)
            jax_names.mlir.register_lowering(primitive, rule, platform=name)
