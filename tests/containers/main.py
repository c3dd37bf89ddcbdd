"""Builds the images, runs them as the Compose files say, and sends prompts through proxies in front.

    main.py PROGRAM [STEP...]     PROGRAM is a static build of the gateway. STEP is the beginning of the names of steps

The images and the engine's data stay in target/containers for the next run. Everything listens on loopback.
"""

import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import engine
import registry_copy
from api import Api
from engine import PROJECT, run, wait_for

MAX_BYTES = 60_000_000
NAME = "acp-gateway-test"
IMAGES = {target: f"{NAME}:{target}" for target in ["gateway", "gateway-node"]}
FILES = """
drwx------ 10001 data
drwxr-xr-x 0 etc
-rw-r--r-- 0 etc/group
-rw-r--r-- 0 etc/passwd
drwxr-xr-x 0 etc/ssl
drwxr-xr-x 0 etc/ssl/certs
-rw-r--r-- 0 etc/ssl/certs/ca-certificates.crt
drwxrwxrwt 0 tmp
drwxr-xr-x 0 usr
drwxr-xr-x 0 usr/local
drwxr-xr-x 0 usr/local/bin
-rwx--x--x 0 usr/local/bin/acp-gateway
-rwx--x--x 0 usr/local/bin/tini
drwxr-xr-x 10001 workspaces
""".strip().splitlines()
# The engine creates these in a container.
OF_ENGINE = re.compile(r"(\.dockerenv|dev|proc|sys|etc/(hostname|hosts|mtab|resolv\.conf))(/| -> |$)")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


# --- images ----------------------------------------------------------------------------------------------------------


def build_images(program):
    for name, make in [("DEBIAN", engine.debian), ("NODE", engine.node)]:
        engine.provide(engine.names_of_bases()[name], make)
    with tempfile.TemporaryDirectory() as context:
        shutil.copy(program, f"{context}/acp-gateway")
        for target, image in IMAGES.items():
            words = ["--target", target, "--tag", image, "--build-arg", "BINARY=prebuilt", "--file", PROJECT / "Dockerfile"]
            run("docker", "build", *words, context)
    for target, image in IMAGES.items():
        size = int(run("docker", "image", "inspect", "--format", "{{.Size}}", image))
        print(f"    image {target}: {size / 1e6:.1f} MB", flush=True)
        assert target != "gateway" or size <= MAX_BYTES, f"more than {MAX_BYTES / 1e6} MB"
    assert files_of(IMAGES["gateway"]) == FILES, "\n".join(files_of(IMAGES["gateway"]))


def build_from_source():
    """The certificates of this machine reach the compilation only, although they may be those of a proxy."""
    engine.provide(engine.names_of_bases()["RUST"], engine.rust)
    certificates = os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")
    image = f"{NAME}:source"
    run("docker", "build", "--target", "gateway", "--tag", image, "--secret", f"id=ca,src={certificates}", PROJECT)
    assert files_of(image) == FILES, "\n".join(files_of(image))
    assert certificates_of(image) == certificates_of(IMAGES["gateway"]), "the image contains certificates of this machine"
    with Compose(engine.compose_commands()[1], ["compose.yaml"], image) as compose:
        compose.up()
        answer_of_the_demo_agent(compose.api)


def certificates_of(image):
    with contained(image) as container, tempfile.TemporaryDirectory() as folder:
        run("docker", "cp", f"{container}:/etc/ssl/certs/ca-certificates.crt", folder)
        return pathlib.Path(folder, "ca-certificates.crt").read_bytes()


@contextlib.contextmanager
def contained(image):
    """A container that does not run."""
    container = run("docker", "create", image).strip()
    try:
        yield container
    finally:
        run("docker", "rm", "--volumes", container)


def files_of(image):
    """The files of an image with their modes and users."""
    with contained(image) as container, tempfile.TemporaryDirectory() as folder:
        run("docker", "export", "--output", f"{folder}/files.tar", container)
        lines = run("tar", "--list", "--verbose", "--numeric-owner", "--file", f"{folder}/files.tar").splitlines()
    found = []
    for line in lines:
        mode, owner, _, _, _, name = line.split(maxsplit=5)
        if not OF_ENGINE.match(name):
            found.append(f"{mode} {owner.split('/')[0]} {name.rstrip('/')}")
    return sorted(found, key=lambda line: line.split()[2])


# --- Compose ---------------------------------------------------------------------------------------------------------


class Compose:
    """A project of Compose with the files of the repository. It is removed with its volumes at the end."""

    def __init__(self, command, files, image, **variables):
        self.words = [*command, "--project-name", NAME, "--project-directory", PROJECT]
        self.words += [word for file in files for word in ("--file", PROJECT / file)]
        self.key = secrets.token_hex(32)
        self.port = free_port()
        self.environment = {
            **os.environ,
            "ACP_GATEWAY_ADMIN_KEY_HASH": hashlib.sha256(self.key.encode()).hexdigest(),
            "ACP_GATEWAY_IMAGE": image,
            "ACP_GATEWAY_PORT": str(self.port),
            **variables,
        }
        self.api = Api(("127.0.0.1", self.port), self.key)
        # The name that the gateway accepts with each public URL.
        self.probe = Api(("127.0.0.1", self.port), self.key, "127.0.0.1:8080")

    def __call__(self, *words):
        return run(*self.words, *words, env=self.environment)

    def up(self, *services):
        self("up", "--detach", "--no-build", *services)
        wait_for(lambda: self.probe.status("/readyz") == 200, 30, "the gateway is not ready")

    def container(self, service="gateway"):
        return self("ps", "--quiet", service).strip()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            print(subprocess.run([*map(str, self.words), "logs", "--tail", "40"], env=self.environment, capture_output=True, text=True).stdout)
        self("down", "--volumes", "--remove-orphans")


def answer_of_the_demo_agent(api):
    """A turn that waits for a permission: its first events must arrive while it runs. A proxy that buffers would keep them."""
    session = api.new_session()["sessionId"]
    stream = api.follow(session)
    api.start(session, "/permission")
    for event in stream:
        if event["type"] == "request.created":
            option = event["params"]["options"][0]["optionId"]
            api.ask("POST", f"/v1/sessions/{session}/permissions/{event['requestId']}", {"optionId": option})
        if event["type"] == "prompt.completed":
            return session
    raise AssertionError("the stream has ended")


def kill_in_a_turn(compose):
    """Kills the container: the log keeps all delivered events, and the turn is interrupted."""
    session = compose.api.new_session()["sessionId"]
    container = compose.container()
    seen = []
    stream = compose.api.follow(session)
    compose.api.start(session, "/slow 60")
    with contextlib.suppress(OSError, http.client.IncompleteRead):
        for event in stream:
            seen.append(event)
            if [event["type"] for event in seen].count("session.update") == 2:
                run("docker", "kill", container)
                break
        # Events that were on the way.
        seen.extend(stream)
    compose.up()
    log = compose.api.events(session)
    delivered = [event for event in seen if "seq" in event]
    assert log[:len(delivered)] == delivered, "delivered events are not in the log"
    [end] = [event for event in log if event["type"] in ("prompt.completed", "prompt.failed")]
    assert end["problem"]["code"] == "interrupted", end
    assert compose.api.prompt(session, "hello")["status"] == "completed"
    return session


def update(compose, image, session):
    """A new image with the volumes of the previous container."""
    before = compose.api.events(session)
    label = f"{NAME}={secrets.token_hex(4)}"
    with tempfile.TemporaryDirectory() as folder:
        engine.build(f"{NAME}:next", f"FROM {image}\nLABEL {label}\n", folder)
    previous = compose.container()
    compose.environment["ACP_GATEWAY_IMAGE"] = f"{NAME}:next"
    compose.up()
    assert compose.container() != previous
    after = compose.api.events(session)
    assert after[:len(before)] == before, "the update lost events"
    assert compose.api.prompt(session, "hello")["status"] == "completed"


def compose_file(command, image):
    with Compose(command, ["compose.yaml"], image) as compose:
        compose.up()
        answer_of_the_demo_agent(compose.api)
        assert compose("exec", "-T", "gateway", "acp-gateway", "link").startswith(f"http://127.0.0.1:{compose.port}/#key=")
        state = ["docker", "inspect", "--format", "{{.State.Health.Status}}", compose.container()]
        wait_for(lambda: run(*state).strip() == "healthy", 60, "the container is not healthy")
        session = kill_in_a_turn(compose)
        update(compose, image, session)


def environment_is_hidden(command):
    """Another program of the same user, such as an agent, cannot read the secrets of the container."""
    with Compose(command, ["compose.yaml"], IMAGES["gateway-node"]) as compose:
        compose.up()
        read = "for file in /proc/[0-9]*/environ; do head -c 1 $file > /dev/null 2>&1 && cat ${file%environ}cmdline; done; true"
        own = compose("exec", "-T", "gateway", "sh", "-c", read)
        assert own and "acp-gateway" not in own.replace(read, ""), own


def isolation_variant(command, image):
    with Compose(command, ["compose.yaml", "compose.isolation.yaml"], image) as compose:
        compose.up()
        session = compose.api.new_session()
        assert session["isolation"]["mechanism"] == "namespaces", compose("logs", "gateway")
        assert compose.api.prompt(session["sessionId"], "hello")["status"] == "completed"


def own_users(command, image):
    """The variant of the guide in which the gateway is root and each agent has its own user, without and with namespaces."""
    change = re.search(r"```yaml\n(services:\n  gateway:\n    user:.*?)```", (PROJECT / "docs/guides/docker.md").read_text(), re.DOTALL)[1]
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "run-as.yaml").write_text(change)
        for files in [["compose.yaml"], ["compose.yaml", "compose.isolation.yaml"]]:
            with Compose(command, [*files, f"{folder}/run-as.yaml"], image) as compose:
                compose.up()
                session = compose.api.new_session()
                if "compose.isolation.yaml" in files:
                    assert session["isolation"]["mechanism"] == "namespaces", session["isolation"]
                assert compose.api.prompt(session["sessionId"], "hello")["status"] == "completed"
                users = run("docker", "top", compose.container(), "-eo", "pid,uid,args").splitlines()
                agents = [line for line in users if line.endswith("demo-agent") and "supervisor" not in line]
                assert agents and all(int(line.split()[1]) >= 20000 for line in agents), users


@contextlib.contextmanager
def copy_of_registries(compose, folder):
    """Serves the copy on the loopback of the gateway's container."""
    network = f"container:{compose.container()}"
    words = ["--network", network, "--volume", f"{folder}:/copy:ro", "--entrypoint", "node", IMAGES["gateway-node"]]
    server = run("docker", "run", "--detach", *words, f"/copy/{registry_copy.SERVER.name}", "/copy", registry_copy.PORT).strip()
    try:
        yield
    finally:
        run("docker", "rm", "--force", "--volumes", server)


def answer_of_claude(command):
    """From an empty container to an answer of Claude, with the requests of the page and the entry that the page asks for."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        # The user of the container reads it.
        folder.chmod(0o755)
        registry_copy.write(folder)
        change = {"environment": {**registry_copy.VARIABLES, "ANTHROPIC_API_KEY": registry_copy.CLAUDE["ANTHROPIC_API_KEY"]}}
        (folder / "claude.yaml").write_text(json.dumps({"services": {"gateway": change}}))
        with Compose(command, ["compose.yaml", folder / "claude.yaml"], IMAGES["gateway-node"]) as compose:
            began = time.monotonic()
            compose.up()
            def send(path, body=None):
                return compose.api.ask("POST" if body else "GET", path, body)
            with copy_of_registries(compose, folder):
                wait_for(lambda: compose.api.status("/v1/registry") == 200, 20, "the copy does not answer")
                download = registry_copy.install(send)
                add_key(compose, send("/v1/installation")["installation"]["configFile"])
                registry_copy.ask(send)
            total = time.monotonic() - began
            print(f"    answer of Claude after {total:.1f} s, of which npm downloads and unpacks Claude for {download:.1f} s", flush=True)
            assert total - download < 20


def add_key(compose, file):
    """Adds the variables of Claude to its entry, which is the last one of the file. Other users reach this gateway, so its agents inherit none."""
    key = '{ from_env = "ANTHROPIC_API_KEY" }'
    others = f'ANTHROPIC_BASE_URL = "{registry_copy.URL}", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC = "1"'
    text = f"env = {{ ANTHROPIC_API_KEY = {key}, {others} }}"
    # The installation has caused a reload, too.
    reloads = lambda: compose("logs", "gateway").count("the configuration was reloaded")
    before = reloads()
    compose("exec", "-T", "gateway", "sh", "-c", 'echo "$1" >> "$2"', "sh", text, file)
    compose("kill", "-s", "HUP", "gateway")
    wait_for(lambda: reloads() > before, 30, "the configuration was not reloaded")


# --- proxies ---------------------------------------------------------------------------------------------------------


def replaced(text, *pairs):
    for old, new in pairs:
        assert old in text, f"{old} is not in the file"
        text = text.replace(old, new)
    return text


@contextlib.contextmanager
def process(*words, **options):
    with tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen([str(word) for word in words], stdout=output, stderr=output, start_new_session=True, **options)
        try:
            yield
        finally:
            child.terminate()
            try:
                child.wait(20)
            finally:
                # nginx has workers.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                if sys.exc_info()[0]:
                    output.seek(0)
                    print(output.read()[-4000:])


def nginx_in_front(folder, compose):
    """nginx with the file of the repository, and once more below a path as the guide describes."""
    certificate, key = folder / "gateway.pem", folder / "gateway.key"
    words = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=gateway.example"]
    run("openssl", "req", *words, "-addext", "subjectAltName=DNS:gateway.example", "-out", certificate, "-keyout", key)
    port, below = free_port(), free_port()
    server = replaced(
        (PROJECT / "deploy/nginx/acp-gateway.conf").read_text(),
        ("    listen [::]:443 ssl http2;\n", ""),
        ("listen 443", f"listen 127.0.0.1:{port}"),
        ("/etc/ssl/gateway.example.pem", str(certificate)),
        ("/etc/ssl/gateway.example.key", str(key)),
        ("http://127.0.0.1:8080", f"http://127.0.0.1:{compose.port}"),
    )
    upstream = f"http://127.0.0.1:{compose.port}"
    server_below = replaced(server, (f":{port} ", f":{below} "), ("location / {", "location /tools/gateway/ {"), (f"{upstream};", f"{upstream}/;"))
    places = "".join(f"{name}_temp_path {folder}/{name};\n" for name in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
    config = f"daemon off; pid {folder}/pid; error_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{places}{server}{server_below}}}\n"
    (folder / "nginx.conf").write_text(config)
    with process(engine.unpacked("nginx", "usr/sbin/nginx"), "-p", folder, "-e", "stderr", "-c", folder / "nginx.conf"):
        api = Api(("127.0.0.1", port), compose.key, "gateway.example", certificate)
        wait_for(lambda: api.status("/livez") == 200, 20, "nginx does not answer")
        answer_of_the_demo_agent(api)
        assert Api(("127.0.0.1", below), compose.key, "gateway.example", certificate).status("/tools/gateway/livez") == 200
        arguments = ["--resolve", f"gateway.example:{port}:127.0.0.1", "--cacert", certificate, f"https://gateway.example:{port}/livez"]
        assert run("curl", "--silent", "--output", folder / "answer", "--write-out", "%{http_version}", *arguments) == "2"


def caddy_in_front(folder, compose):
    port = free_port()
    site = replaced((PROJECT / "deploy/caddy/Caddyfile").read_text(), ("127.0.0.1:8080", f"127.0.0.1:{compose.port}"))
    # Certificates of an own authority, which is not added to those of the system.
    options = f"admin off\nlocal_certs\nskip_install_trust\nauto_https disable_redirects\nhttps_port {port}\ndefault_bind 127.0.0.1\n"
    (folder / "Caddyfile").write_text(f"{{\n{options}}}\n{site}")
    environment = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with process(engine.unpacked("caddy", "usr/bin/caddy"), "run", "--config", folder / "Caddyfile", "--adapter", "caddyfile", env=environment):
        authority = folder / "caddy/pki/authorities/local/root.crt"
        wait_for(authority.exists, 20, "Caddy has no authority")
        api = Api(("127.0.0.1", port), compose.key, "gateway.example", authority)
        wait_for(lambda: api.status("/livez") == 200, 20, "Caddy does not answer")
        answer_of_the_demo_agent(api)


def proxies_of_the_host(command, image):
    """The container trusts proxies of the host, which reach it from the address of the engine's network."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        # The workers of nginx run as another user.
        folder.chmod(0o755)
        change = {
            "command": ["serve"],
            "environment": {
                "ACP_GATEWAY__SERVER__PUBLIC_URL": "https://gateway.example",
                "ACP_GATEWAY__SERVER__TRUSTED_PROXIES": '["172.16.0.0/12", "192.168.0.0/16"]',
            },
        }
        (folder / "proxied.yaml").write_text(json.dumps({"services": {"gateway": change}}))
        with Compose(command, ["compose.yaml", folder / "proxied.yaml"], image) as compose:
            compose.up()
            for front in [nginx_in_front, caddy_in_front]:
                own = folder / front.__name__
                own.mkdir()
                front(own, compose)


def caddy_beside(command, image):
    """deploy/compose/proxy.yaml without Open WebUI. A program in a container uses its connection to the gateway."""
    text = (PROJECT / "deploy/compose/proxy.yaml").read_text()
    engine.provide(re.search(r"image: (caddy:\S+)", text)[1], engine.caddy)
    address = "127.0.0.80"
    # Caddy issues certificates for names below localhost itself.
    domain = "gateway.localhost"
    variables = {"PUBLISH": f"{address}:", "GATEWAY_DOMAIN": domain, "CHAT_DOMAIN": "chat.localhost"}
    with tempfile.TemporaryDirectory() as folder, Compose(command, ["compose.yaml", "deploy/compose/proxy.yaml"], image, **variables) as compose:
        compose.up("gateway", "caddy")
        authority = f"{folder}/root.crt"
        copy = ["docker", "cp", f"{compose.container('caddy')}:/data/caddy/pki/authorities/local/root.crt", authority]
        wait_for(lambda: engine.works(*copy), 20, "Caddy has no authority")
        api = Api((address, 443), compose.key, domain, authority)
        wait_for(lambda: api.status("/livez") == 200, 20, "Caddy does not answer")
        answer_of_the_demo_agent(api)
        redirect = Api((address, 80), compose.key, domain).open("GET", "/")
        assert redirect.status == 308 and redirect.headers["Location"] == f"https://{domain}/"
        key = compose("exec", "-T", "gateway", "acp-gateway", "key", "create", "open-webui", "--scopes", "read,prompt,approve,actAs").strip()
        url = re.search(r"OPENAI_API_BASE_URL: (\S+)", text)[1]
        program = "fetch(process.env.URL + '/models', { headers: { authorization: 'Bearer ' + process.env.KEY, 'x-acp-user': 'ann@example.org' } }).then(async (answer) => console.log(await answer.text()))"
        words = ["--rm", "--network", f"{NAME}_default", "--env", "URL", "--env", "KEY", "--entrypoint", "node", IMAGES["gateway-node"], "-e", program]
        models = json.loads(run("docker", "run", *words, env={**os.environ, "URL": url, "KEY": key}))
        assert [model["id"] for model in models["data"]] == ["demo"], models


def main():
    program = pathlib.Path(sys.argv[1]).resolve(strict=True)
    with engine.engine():
        engine.choose_client()
        compose_1, compose_2 = engine.compose_commands()
        small, with_node = IMAGES["gateway"], IMAGES["gateway-node"]
        steps = {
            "both images": lambda: build_images(program),
            "compose.yaml, Compose 2, gateway": lambda: compose_file(compose_2, small),
            "compose.yaml, Compose 1, gateway-node": lambda: compose_file(compose_1, with_node),
            "the environment is hidden from agents": lambda: environment_is_hidden(compose_2),
            "compose.isolation.yaml, gateway": lambda: isolation_variant(compose_2, small),
            "compose.isolation.yaml, gateway-node": lambda: isolation_variant(compose_2, with_node),
            "Claude from a copy of the registries, gateway-node": lambda: answer_of_claude(compose_2),
            "own users for agents": lambda: own_users(compose_2, with_node),
            "nginx and Caddy on the host": lambda: proxies_of_the_host(compose_2, small),
            "deploy/compose/proxy.yaml, Compose 1": lambda: caddy_beside(compose_1, small),
            "deploy/compose/proxy.yaml, Compose 2": lambda: caddy_beside(compose_2, small),
            "an image from source": build_from_source,
        }
        for name, step in steps.items():
            if name.startswith(tuple(sys.argv[2:] or [""])):
                print(f"  {name}", flush=True)
                step()


main()
