"""Print pyproject.toml's dependencies pinned at their lower bounds: jax>=1.2 as jax==1.2."""

import pathlib
import tomllib

project = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]
for requirement in project["dependencies"]:
    print(requirement.replace(">=", "=="))
