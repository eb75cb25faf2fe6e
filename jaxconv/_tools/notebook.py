"""`%load_ext jaxconv`: `install` in a notebook, and `%%jaxconv_profile` for one cell."""

from typing import Any

import jaxconv

MAGIC = "jaxconv_profile"


def load_ipython_extension(shell: Any) -> None:
    """Do what `%load_ext jaxconv` asks for: install, and make the magic known."""

    def profile(line: str, cell: str) -> None:
        """Run the cell, then print how its convolutions were computed."""
        with jaxconv.profile() as report:
            result = shell.run_cell(cell)
        print(report)
        result.raise_error()  # so that "run all" ends here

    jaxconv.install()
    shell.register_magic_function(profile, "cell", MAGIC)


def unload_ipython_extension(shell: Any) -> None:
    """Undo `%load_ext jaxconv`, for `%unload_ext jaxconv`."""
    jaxconv.uninstall()
    shell.magics_manager.magics["cell"].pop(MAGIC, None)
