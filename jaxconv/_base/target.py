"""What a program is compiled for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A platform, and the ways of compiling for it that decide what a program may hold."""

    #: None for each platform without a table of its own
    platform: str | None
    #: the devices over which XLA itself splits the program
    devices: int = 1
    #: whether `jax.export` lowers the program
    exported: bool = False

    @property
    def alone(self) -> bool:
        """Whether the program is for one device, and this process runs it."""
        return self.devices == 1 and not self.exported

    @property
    def may_call_onednn(self) -> bool:
        """Whether a program may call oneDNN; `onednn_here` says if this process may."""
        return self.platform == "cpu" and self.alone
