"""What a traced function or a compiled program consists of."""


def primitives(jaxpr) -> list[str]:
    """The names of all equations, in order, inner jaxprs' included."""
    return [eqn.primitive.name for eqn in equations(jaxpr)]


def contractions(jaxpr) -> list[str]:
    """The slots that the contractions of a jaxpr fill, in order."""
    prefix = "contract_to_"
    return [name.removeprefix(prefix) for name in primitives(jaxpr) if name.startswith(prefix)]


def equations(jaxpr):
    """All equations but those that only hold an inner jaxpr, in order."""
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        inner = [
            value
            for param in eqn.params.values()
            for value in (param if isinstance(param, tuple | list) else (param,))
            if hasattr(getattr(value, "jaxpr", value), "eqns")
        ]
        if inner:
            for value in inner:
                yield from equations(value)
        else:
            yield eqn


def collectives(text: str) -> dict[str, int]:
    """How often each collective stands in the text of a compiled program."""
    names = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")
    counts = {name: text.count(f" {name}(") + text.count(f" {name}-start(") for name in names}
    return {name: count for name, count in counts.items() if count}
