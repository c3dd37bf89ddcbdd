"""Copies of the registries that an installation of Claude needs, and the calls from an empty gateway to the first answer of Claude.

`write` fills a folder, which `loopback.mjs` serves. The packages are those of tests/agents, which `npm ci` has installed there.
"""

import hashlib
import json
import pathlib
import platform
import shutil
import subprocess
import time

HERE = pathlib.Path(__file__).absolute().parent
AGENTS = HERE.parent / "agents"
SERVER = HERE / "loopback.mjs"
# The server has a network namespace of its own, in which every port is free.
PORT = 8000
URL = f"http://127.0.0.1:{PORT}"
# The id in the registry of the ACP project.
AGENT = "claude-acp"
PACKAGE = "@agentclientprotocol/claude-agent-acp"
# The settings of the gateway for this copy, and those of npm.
VARIABLES = {"ACP_GATEWAY__REGISTRY__SOURCE": f"{URL}/registry.json", "npm_config_registry": URL, "npm_config_update_notifier": "false"}
# The variables of Claude.
CLAUDE = {"ANTHROPIC_API_KEY": "sk-ant-mock-0000", "ANTHROPIC_BASE_URL": URL}
# Node and its npm, as packages of npm.
ARCHITECTURES = {"x86_64": "x64", "aarch64": "arm64"}
NODE = f"node-linux-{ARCHITECTURES[platform.machine()]}@22.23.5"
NPM = "npm@10.9.8"
# The bound for each wait, much longer than it takes.
DEADLINE = 300


def run(*words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=600, **options)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def add_node(root, downloads):
    """Adds Node with npm to a root folder. The packages stay in the folder of downloads for the next run."""
    downloads.mkdir(parents=True, exist_ok=True)
    modules = root / "usr/local/lib/node_modules"
    for name, package in [("node", NODE), ("npm", NPM)]:
        archive = downloads / f"{package.replace('@', '-')}.tgz"
        if not archive.exists():
            run("npm", "pack", "--silent", package, cwd=downloads)
        (modules / name).mkdir(parents=True)
        run("tar", "--extract", "--file", archive, "--directory", modules / name, "--strip-components=1", "--no-same-owner")
    programs = root / "usr/local/bin"
    programs.mkdir(exist_ok=True)
    for name, program in [("node", "node/bin/node"), ("npm", "npm/bin/npm-cli.js"), ("npx", "npm/bin/npx-cli.js")]:
        (programs / name).symlink_to(f"../lib/node_modules/{program}")


def add_package(folder, manifest, archive, url=URL):
    """Adds a version of a package to a registry of npm. The archive is a file in the folder. That of another platform is absent."""
    document = folder / manifest["name"]
    document.parent.mkdir(exist_ok=True)
    known = json.loads(document.read_text())["versions"] if document.exists() else {}
    manifest["dist"] = {"tarball": f"{url}/{archive.name}"}
    if archive.exists():
        manifest["dist"]["shasum"] = hashlib.sha1(archive.read_bytes()).hexdigest()
    known[manifest["version"]] = manifest
    document.write_text(json.dumps({"name": manifest["name"], "dist-tags": {"latest": manifest["version"]}, "versions": known}))


def packages_of_claude():
    """The packages that Claude needs, for all platforms: each folder in tests/agents with its row of the lock file."""
    lock = json.loads((AGENTS / "package-lock.json").read_text())["packages"]
    by_name = {}
    for path, row in lock.items():
        if path:
            row["name"] = row.get("name") or path.rpartition("node_modules/")[2]
            by_name.setdefault(row["name"], []).append((AGENTS / path, row))
    found = []
    names = [PACKAGE]
    for name in names:
        for path, row in by_name.get(name, []):
            found.append((path, row))
            for kind in ["dependencies", "optionalDependencies", "peerDependencies"]:
                names += [needed for needed in row.get(kind, {}) if needed not in names]
    return found


def write(folder):
    """Writes both registries."""
    for path, row in packages_of_claude():
        archive = folder / f"{row['name'].replace('/', '-')}-{row['version']}.tgz"
        if path.exists():
            # The fastest compression: the archives are for this run only.
            words = ["--use-compress-program=gzip -1", "--exclude=./node_modules", "--transform=s,^[.],package,"]
            run("tar", "--create", *words, "--file", archive, "--directory", path, ".")
        add_package(folder, row, archive)
    version = json.loads((AGENTS / "package.json").read_text())["dependencies"][PACKAGE]
    package = {"npx": {"package": f"{PACKAGE}@{version}"}}
    entry = {"id": AGENT, "name": "Claude", "version": version, "description": "Claude Code", "distribution": package}
    (folder / "registry.json").write_text(json.dumps({"version": "1.0.0", "agents": [entry], "extensions": []}))
    shutil.copy(SERVER, folder)


def ended(read):
    """Waits for the end of an installation or of a turn. Returns it, and the times at which its steps began."""
    began = {}
    end = time.monotonic() + DEADLINE
    while (state := read())["status"] in ["queued", "running"]:
        now = time.monotonic()
        assert now < end, state
        # An installation that waits has no step.
        if step := state.get("step"):
            began.setdefault(step, now)
        time.sleep(0.2)
    return state, began


def install(send):
    """Installs Claude with the requests of the page. `send` sends a request with an optional body, and returns the answer.

    Returns the time of the step in which npm downloads and unpacks the packages.
    """
    [offered] = send("/v1/registry")["agents"]
    send("/v1/installation", {"agent": offered["id"], "from": "registry", "version": offered["version"]})
    installation, began = ended(lambda: send("/v1/installation")["installation"])
    assert installation["status"] == "succeeded", installation
    [download] = [step for step in began if step.startswith("installing ")]
    # The next step is the first start of the agent.
    return began["starting the agent"] - began[download]


def ask(send):
    """Sends a prompt to Claude, and checks that the answer is that of the model."""
    session = send("/v1/sessions", {"agent": AGENT})["sessionId"]
    prompts = f"/v1/sessions/{session}/prompts"
    prompt = send(prompts, {"prompt": "Hello"})["promptId"]
    turn, _ = ended(lambda: send(f"{prompts}/{prompt}"))
    assert turn["status"] == "completed" and turn["text"] == "The model read: Hello", turn
