#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the files of deploy/ against the program: flags of `switchyard serve`, paths of probes, times of the drain.

    scripts/check_deploy.py build/release/switchyard

Where systemd-analyze is installed, the unit is verified with it too. Fails with one line for each error.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
UNIT = ROOT / "deploy/systemd/switchyard.service"
MANIFEST = ROOT / "deploy/kubernetes/switchyard.yaml"
DOCKERFILE = ROOT / "deploy/docker/Dockerfile"
REST_S = 15  # of a drain, after --shutdown-timeout: cancelled calls end (10 s), the last answers leave (5 s)


def uncommented(path: pathlib.Path) -> str:
    return "\n".join(line.split(" #")[0] for line in path.read_text().splitlines() if not line.lstrip().startswith("#"))


def commands() -> dict[pathlib.Path, str]:
    """What each file runs the program with."""
    unit = re.search(r"^ExecStart=((?:.*\\\n)*.*)", uncommented(UNIT), re.M)
    manifest = re.search(r"args:\n((?:\s+- .*\n)+)", uncommented(MANIFEST))
    docker = re.search(r"^CMD (\[.*\])$", uncommented(DOCKERFILE), re.M)
    return {path: found.group(1) if found else "" for path, found in
            ((UNIT, unit), (MANIFEST, manifest), (DOCKERFILE, docker))}


def check_flags(program: str) -> list[str]:
    known = set(re.findall(r"--[a-z][a-z-]*", subprocess.run([program, "serve", "--help"], capture_output=True, text=True,
                                                             check=True).stdout))
    errors = []
    for path, command in commands().items():
        used = re.findall(r"--[a-z][a-z-]*", command)
        if not used or "serve" not in command:
            errors.append(f"{path}: no `switchyard serve` with flags found in it")
        errors += [f"{path}: `switchyard serve` has no {flag}" for flag in used if flag not in known]
    return errors


def check_paths() -> list[str]:
    routes = set(re.findall(r'\{"GET", "([^"]+)"', (ROOT / "src/serve/server.cpp").read_text()))
    asked = [(MANIFEST, path) for path in re.findall(r"httpGet: \{path: ([^,]+),", uncommented(MANIFEST))]
    asked += [(MANIFEST, path) for path in re.findall(r"prometheus.io/path: (\S+)", uncommented(MANIFEST))]
    asked += [(DOCKERFILE, path) for path in re.findall(r"http://127.0.0.1:8000(/[^\"]*)", uncommented(DOCKERFILE))]
    errors = [f"{path}: the server has no {wanted}" for path, wanted in asked if wanted not in routes]
    return errors + ([] if len(asked) >= 5 else [f"{MANIFEST}: expected three probes, found paths {asked}"])


def seconds(path: pathlib.Path, pattern: str) -> int:
    found = re.search(pattern, uncommented(path))
    return int(found.group(1)) if found else 0


def check_times() -> list[str]:
    shutdown = r"--shutdown-timeout[ =](\d+)"
    needs = {UNIT: seconds(UNIT, shutdown) + REST_S,
             MANIFEST: seconds(MANIFEST, shutdown) + seconds(MANIFEST, r'\["sleep", "(\d+)"\]') + REST_S}
    grace = {UNIT: seconds(UNIT, r"TimeoutStopSec=(\d+)"),
             MANIFEST: seconds(MANIFEST, r"terminationGracePeriodSeconds: (\d+)")}
    return [f"{path}: the grace period is {grace[path]} s, but a drain may take {needs[path]} s" for path in needs
            if grace[path] <= needs[path]]


def check_unit(program: str) -> list[str]:
    if shutil.which("systemd-analyze") is None:
        return []
    with tempfile.TemporaryDirectory() as folder:
        unit = pathlib.Path(folder) / UNIT.name
        unit.write_text(UNIT.read_text().replace("/usr/local/bin/switchyard", str(pathlib.Path(program).resolve())))
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    return [f"{UNIT}: {line}" for line in done.stderr.splitlines() or ["refused"]] if done.returncode else []


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    program = sys.argv[1]
    errors = check_flags(program) + check_paths() + check_times() + check_unit(program)
    for error in errors:
        print(error.replace(f"{ROOT}/", ""), file=sys.stderr)
    if errors:
        sys.exit(1)
    print("deploy: flags, paths and times agree with the program")


if __name__ == "__main__":
    main()
