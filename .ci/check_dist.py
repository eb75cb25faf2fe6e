"""Check the sdist and the wheel in a folder: contents, metadata, licence."""

import email
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path, PurePosixPath

[wheel], [sdist] = (list(Path(sys.argv[1]).glob(p)) for p in ("*.whl", "*.tar.gz"))
pyproject = tomllib.loads(Path("pyproject.toml").read_text())
project, built = pyproject["project"], pyproject["tool"]["hatch"]["build"]["targets"]
tracked = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True)
tracked = tracked.stdout.splitlines()

with zipfile.ZipFile(wheel) as file:
    names = file.namelist()
    [info] = {name.split("/")[0] for name in names if ".dist-info/" in name}
    metadata = email.message_from_bytes(file.read(f"{info}/METADATA"))
    licence = file.read(f"{info}/licenses/LICENSE").decode()
    points = file.read(f"{info}/entry_points.txt").decode()
package = sorted(name for name in names if not name.startswith(info))
ours = [name for name in tracked if name.startswith("jaxconv/")]
assert package == sorted([*ours, "jaxconv_plugin.py"]), package
assert "jaxconv/py.typed" in package
assert points == "[jax_plugins]\njaxconv = jaxconv_plugin\n", points
assert licence == Path("LICENSE").read_text()
assert metadata["Name"] == "jaxconv"
assert f"-{metadata['Version']}-py3-none-any" in wheel.name, wheel.name
assert metadata["License-Expression"] == "Apache-2.0"
assert metadata["Author"] == "The jaxconv developers"
assert metadata["Requires-Python"] == project["requires-python"]
needed = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
normal = [name.lower().replace("_", "-") for name in project["dependencies"]]
assert sorted(needed) == sorted(normal), needed
assert metadata.get_payload() == Path("README.md").read_text()
cited = f"version: {metadata['Version']}\n"
assert cited in Path("CITATION.cff").read_text(), f"CITATION.cff has no `{cited}`"

with tarfile.open(sdist) as file:
    names = {str(PurePosixPath(*PurePosixPath(name).parts[1:])) for name in file.getnames()}
wanted = [part.strip("/") for part in built["sdist"]["include"]]
listed = {n for n in tracked if any(n == part or n.startswith(f"{part}/") for part in wanted)}
assert all(part in tracked or any(n.startswith(f"{part}/") for n in listed) for part in wanted)
extra = {"PKG-INFO", ".gitignore", "pyproject.toml"}
assert names - extra == listed, names - extra ^ listed
print(f"{wheel.name}: {len(package)} files; {sdist.name}: {len(names)} files; as they should be")
