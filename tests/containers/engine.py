"""A Docker engine for the tests: the one that runs, or one that the tests start with a folder of its own and stop.

The base images come from a registry. Without a registry they are made of Debian packages, under the same names.
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PROJECT = pathlib.Path(__file__).parents[2]
sys.path.append(str(PROJECT / "tests/packages"))

import registry_copy

# Images and downloads for the next run.
STATE = PROJECT / "target/containers"
# The package of Debian 12 is Compose 1. That of Debian 13 has a static program.
OF_COMPOSE_2 = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main"


def run(*words, **options):
    """Runs a command and returns its output. Its error contains both outputs."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def wait_for(check, seconds, name):
    """Polls until the check returns something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := check():
            return found
        time.sleep(0.2)
    raise RuntimeError(f"after {seconds} s: {name}")


def works(*words):
    return subprocess.run(words, capture_output=True).returncode == 0


@contextlib.contextmanager
def engine():
    """Provides an engine for the commands of this process."""
    os.environ["DOCKER_BUILDKIT"] = "1"
    STATE.mkdir(parents=True, exist_ok=True)
    if works("docker", "info"):
        yield
        return
    runtime = tempfile.mkdtemp(prefix="acp-gateway-docker.")
    os.environ["DOCKER_HOST"] = f"unix://{runtime}/docker.sock"
    log = open(f"{runtime}/log", "w+")
    words = ["dockerd", "--data-root", STATE / "engine", "--exec-root", f"{runtime}/exec"]
    words += ["--pidfile", f"{runtime}/pid", "--host", os.environ["DOCKER_HOST"]]
    daemon = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        try:
            wait_for(lambda: daemon.poll() is not None or works("docker", "info"), 60, "dockerd does not answer")
            if daemon.poll() is not None:
                raise RuntimeError("dockerd has ended")
        except RuntimeError:
            log.seek(0)
            print(log.read()[-4000:])
            raise
        yield
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(60)
        shutil.rmtree(runtime)


def choose_client():
    """The first client on PATH that can use BuildKit: that of engines before 23, or a later one with its component buildx."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n")
        for place in os.environ["PATH"].split(":"):
            client = f"{place}/docker"
            if os.access(client, os.X_OK) and works(client, "build", "--quiet", folder):
                os.environ["PATH"] = f"{place}:{os.environ['PATH']}"
                return
    raise RuntimeError("no client on PATH can build with BuildKit")


def compose_commands():
    """The commands of Compose 1 and 2."""
    plugin = ["docker", "compose"]
    if not works(*plugin, "version"):
        plugin = [unpacked("docker-compose", "usr/libexec/docker/cli-plugins/docker-compose", OF_COMPOSE_2)]
    return ["docker-compose"], plugin


def unpacked(package, program, source=None):
    """A program of a Debian package, which is not installed because the installation would start a service."""
    path = STATE / "packages" / package / program
    if path.exists():
        return path
    with tempfile.TemporaryDirectory() as folder:
        # The user of apt reads and writes here.
        os.chmod(folder, 0o777)
        options = []
        if source:
            for name in ["lists/partial", "cache/archives/partial"]:
                pathlib.Path(folder, name).mkdir(parents=True)
            pathlib.Path(folder, "sources.list").write_text(f"{source}\n")
            places = {"Etc::SourceList": "sources.list", "Etc::SourceParts": "-", "State::Lists": "lists", "Cache": "cache"}
            options = [f"--option=Dir::{name}={place if place == '-' else f'{folder}/{place}'}" for name, place in places.items()]
            run("apt-get", "update", *options)
        run("apt-get", "download", package, *options, cwd=folder)
        [archive] = pathlib.Path(folder).glob("*.deb")
        (STATE / "packages").mkdir(exist_ok=True)
        run("dpkg-deb", "--extract", archive, STATE / "packages" / package)
    return path


def names_of_bases():
    """The names of the base images, by their argument in the Dockerfile."""
    return dict(re.findall(r"^ARG (\w+)_IMAGE=(\S+)$", (PROJECT / "Dockerfile").read_text(), re.MULTILINE))


def provide(name, make):
    if not works("docker", "image", "inspect", name) and not works("docker", "pull", "--quiet", name):
        print(f"{name} cannot be pulled, so it is made of packages", flush=True)
        make(name)


def debian(name):
    release = re.search(r"bookworm|trixie", name)[0]
    with tempfile.TemporaryDirectory() as folder:
        run("debootstrap", "--variant=minbase", release, f"{folder}/root")
        archive = f"{folder}/root.tar"
        run("tar", "--create", "--file", archive, "--directory", f"{folder}/root", ".")
        run("docker", "import", archive, name)


def build(name, dockerfile, folder):
    pathlib.Path(folder, "Dockerfile").write_text(dockerfile)
    run("docker", "build", "--tag", name, folder)


def node(name):
    with tempfile.TemporaryDirectory() as folder:
        registry_copy.add_node(pathlib.Path(folder, "root"), STATE / "packages")
        base = names_of_bases()["DEBIAN"]
        build(name, f"FROM {base}\nCOPY root /\n", folder)


def caddy(name):
    with tempfile.TemporaryDirectory() as folder:
        base = names_of_bases()["DEBIAN"]
        start = '["caddy", "run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"]'
        install = "RUN apt-get update && apt-get install --yes --no-install-recommends caddy"
        build(name, f"FROM {base}\n{install}\nENV XDG_DATA_HOME=/data XDG_CONFIG_HOME=/config\nCMD {start}\n", folder)


def rust(name):
    """With the toolchain of this machine."""
    [version] = re.findall(r'^channel = "(.+)"$', (PROJECT / "rust-toolchain.toml").read_text(), re.MULTILINE)
    toolchain = pathlib.Path(run("rustc", f"+{version}", "--print", "sysroot").strip())
    rustup = pathlib.Path(shutil.which("rustup"))
    with tempfile.TemporaryDirectory() as folder:
        base = names_of_bases()["DEBIAN"]
        target = f"/usr/local/rustup/toolchains/{toolchain.name}"
        run("cp", "--recursive", "--no-dereference", toolchain, f"{folder}/toolchain")
        shutil.copy(rustup, f"{folder}/rustup")
        links = "for name in cargo rustc; do ln -s rustup /usr/local/cargo/bin/$name; done"
        lines = [
            f"FROM {base}",
            "RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates gcc libc6-dev",
            "ENV RUSTUP_HOME=/usr/local/rustup CARGO_HOME=/usr/local/cargo PATH=/usr/local/cargo/bin:$PATH",
            f"COPY toolchain {target}",
            "COPY rustup /usr/local/cargo/bin/",
            f"RUN {links} && rustup default {toolchain.name}",
        ]
        build(name, "\n".join(lines) + "\n", folder)
