"""Installs the files of `scripts/release`, uses them, updates them and removes them.

ACP_GATEWAY_TEST_ARTEFACTS is the folder of the files. The tests run as root: they boot Debian 12 with systemd, without Rust and Node,
in namespaces that have no network except loopback (`boot`).
"""

import contextlib
import functools
import hashlib
import http.server
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
import threading
import time
import unittest
import urllib.parse
import urllib.request

import registry_copy

HERE = pathlib.Path(__file__).absolute().parent
# Files for the next run.
STATE = HERE.parents[1] / "target/packages"
FILES = pathlib.Path(os.environ["ACP_GATEWAY_TEST_ARTEFACTS"]).absolute()
VERSION = next(FILES.glob("acp-gateway_*_*.deb")).name.split("_")[1]
# The architectures of releases, with their names in Debian.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
MACHINE = platform.machine()
[FOREIGN] = ARCHITECTURES.keys() - {MACHINE}
DEB = FILES / f"acp-gateway_{VERSION}_{ARCHITECTURES[MACHINE]}.deb"
ARCHIVE = FILES / f"acp-gateway-{VERSION}-{MACHINE}-unknown-linux-musl.tar.gz"
FOREIGN_ARCHIVE = FILES / f"acp-gateway-{VERSION}-{FOREIGN}-unknown-linux-musl.tar.gz"
PACKAGES = "bash-completion,ca-certificates,curl,dbus,fish,man-db,procps,systemd,systemd-sysv,zsh"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEADLINE = 60
# The first words of the answer of the demo agent.
ANSWER = "You wrote “Hello”"


def attempt(*command, timeout=DEADLINE, **options):
    words = [str(word) for word in command]
    return subprocess.run(words, text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=timeout, **options)


def run(*command, **options):
    """Runs a command and returns its output. The output of a command that fails is a part of the error."""
    done = attempt(*command, timeout=600, **options)
    if done.returncode:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def bounded(process, wait):
    """Waits for an output or the end of a process. After DEADLINE the group of the process is killed, which ends the wait."""
    timer = threading.Timer(DEADLINE, os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    try:
        return wait()
    finally:
        timer.cancel()


def started(stack, *command, **options):
    """Starts a process in a group of its own, which ends with the stack."""
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True, start_new_session=True, **options)
    stack.callback(process.stdout.close)
    stack.callback(bounded, process, process.wait)
    stack.callback(process.terminate)
    return process


def until(condition):
    """Waits until the condition holds, and returns its value."""
    end = time.monotonic() + DEADLINE
    while not (value := condition()):
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.1)
    return value


def base():
    """The root folder of a fresh Debian 12, which later runs use again."""
    folder = STATE / f"bookworm-{hashlib.sha256(PACKAGES.encode()).hexdigest()[:16]}"
    if not folder.exists():
        new = folder.with_suffix(".new")
        STATE.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(new, ignore_errors=True)
        run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", new)
        run("chroot", new, "apt-get", "clean")
        new.rename(folder)
    return folder


class System(contextlib.ExitStack):
    """A booted Debian."""

    def __init__(self):
        super().__init__()
        folder = self.enter_context(tempfile.TemporaryDirectory(prefix="acp-gateway-packages-"))
        boot = started(self, "unshare", "--mount", HERE / "boot", base(), folder)
        self.init = bounded(boot, boot.stdout.readline).strip()
        self.root = pathlib.Path(f"/proc/{self.init}/root")
        until(lambda: self.state() in {"running", "degraded"})
        run("nsenter", f"--target={self.init}", "--net", "ip", "link", "set", "lo", "up")

    def command(self, *words, user="root", host=False):
        """A command in the system, or a program of the host in the network of the system."""
        if host:
            return ["nsenter", f"--target={self.init}", "--net", *words]
        login = [] if user == "root" else ["runuser", "-u", user, "--"]
        home = "/root" if user == "root" else f"/home/{user}"
        return ["nsenter", "--all", f"--target={self.init}", *login, "env", "-i", f"PATH={PATH}", f"HOME={home}", *words]

    def run(self, *words, user="root"):
        return run(*self.command(*words, user=user))

    def fails(self, *words, user="root"):
        done = attempt(*self.command(*words, user=user))
        assert done.returncode, f"{words} succeeded"
        return done.stderr

    def state(self):
        return attempt(*self.command("systemctl", "is-system-running")).stdout.strip()

    def start(self, *words, user="root", host=False):
        """Starts a process that ends with the system."""
        return started(self, *self.command(*words, user=user, host=host), stderr=subprocess.DEVNULL)

    def request(self, url, key, body=None, prefer=None):
        words = ["curl", "-sS", "--fail-with-body", "--max-time", str(DEADLINE), "-H", f"Authorization: Bearer {key}", url]
        words += ["--json", json.dumps(body)] if body else []
        words += ["-H", f"Prefer: {prefer}"] if prefer else []
        return json.loads(self.run(*words))


def request(url, key, body=None, prefer=None):
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    headers |= {"Prefer": prefer} if prefer else {}
    data = json.dumps(body).encode() if body else None
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=DEADLINE) as response:
        return json.load(response)


def link_of(process):
    """The link that a start prints."""
    return re.fullmatch(r"(http://\S+)/#key=(\S+)", bounded(process, process.stdout.readline).strip()).groups()


def prompt(send, url, key):
    """Sends a prompt to the demo agent, and returns the id of the session."""
    session = send(f"{url}/v1/sessions", key, {"agent": "demo"})["sessionId"]
    turn = send(f"{url}/v1/sessions/{session}/prompts", key, {"prompt": "Hello"}, prefer="wait=30")
    assert turn["status"] == "completed" and turn["text"].startswith(ANSWER), turn
    return session


def with_version(package, version, folder):
    """The same Debian package with another version."""
    run("dpkg-deb", "-R", package, folder / "package")
    control = folder / "package/DEBIAN/control"
    control.write_text(re.sub(r"(?m)^Version: .*$", f"Version: {version}", control.read_text()))
    run("dpkg-deb", "-Zgzip", "-z1", "-b", folder / "package", folder / "other.deb")
    shutil.rmtree(folder / "package")


class Files(unittest.TestCase):
    def test_checksums_cover_all_files(self):
        lines = (FILES / "SHA256SUMS").read_text().splitlines()
        run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=FILES)
        self.assertEqual({line.split("  ")[1] for line in lines}, {file.name for file in FILES.iterdir()} - {"SHA256SUMS"})

    def test_program_is_static_and_has_no_path_of_the_machine(self):
        with tempfile.TemporaryDirectory() as folder:
            for archive in FILES.glob("acp-gateway-*-musl.tar.gz"):
                run("tar", "-xzf", archive, "-C", folder, "--strip-components=1")
                program = pathlib.Path(folder, "bin/acp-gateway").read_bytes()
                self.assertNotIn(b"/lib/ld-", program)
                for path in [str(pathlib.Path.home()), str(HERE.parents[1])]:
                    self.assertNotRegex(program, re.escape(f"{path}/".encode()))

    def test_clients_are_complete(self):
        for name in ["client", "react"]:
            with tarfile.open(FILES / f"acp-gateway-{name}-{VERSION}.tgz") as archive:
                names = archive.getnames()
                manifest = json.load(archive.extractfile("package/package.json"))
            self.assertLessEqual({"package/LICENSE", "package/README.md", "package/dist/index.js", "package/dist/index.d.ts"}, set(names))
            self.assertEqual((manifest["version"], manifest["license"]), (VERSION, "Apache-2.0"))
            self.assertNotIn("private", manifest)
            for targets in manifest["exports"].values():
                for target in targets.values():
                    self.assertIn(f"package/{target.removeprefix('./')}", names)


class Debian(unittest.TestCase):
    def test_service_answers_survives_an_update_and_is_removed(self):
        with System() as system:
            with_version(DEB, "0.0.1", system.root / "root")
            shutil.copy(DEB, system.root / "root/new.deb")
            (system.root / "etc/default/acp-gateway").write_text("ACP_GATEWAY__TIMEOUTS__DRAIN_TIMEOUT=20s\n")
            system.run("dpkg", "-i", "/root/other.deb")
            system.run("systemd-analyze", "verify", "--man=yes", "acp-gateway.service")
            exposure = system.run("systemd-analyze", "security", "--no-pager", "acp-gateway.service")
            examples = {file.name for file in (system.root / "usr/share/doc/acp-gateway/examples").iterdir()}
            self.assertLessEqual({"Caddyfile", "acp-gateway.conf", "acp-gateway.json", "alerts.yaml"}, examples)
            self.assertLess(float(re.search(r"exposure level for acp-gateway\.service: ([0-9.]+)", exposure)[1]), 4)

            url, key = self.link(system)
            session = prompt(system.request, url, key)
            # The sandbox of the service leaves the isolation of agents complete.
            journal = system.run("journalctl", "--unit=acp-gateway", "--output=cat")
            self.assertIn('"isolation":"namespaces"', journal)
            self.assertRegex(journal, r'"control_groups":"used')
            self.assertNotIn(key, journal)
            environment = system.run("sh", "-c", "cat /proc/$(systemctl show --value --property=MainPID acp-gateway)/environ")
            self.assertIn("ACP_GATEWAY__TIMEOUTS__DRAIN_TIMEOUT=20s", environment)
            system.run("systemctl", "reload", "acp-gateway")

            system.run("dpkg", "-i", "/root/new.deb")
            url, key = self.link(system)
            sessions = system.request(f"{url}/v1/sessions", key)["sessions"]
            self.assertEqual([each["sessionId"] for each in sessions], [session])
            turns = system.request(f"{url}/v1/sessions/{session}/prompts", key)["prompts"]
            self.assertEqual([turn["status"] for turn in turns], ["completed"])
            prompt(system.request, url, key)

            system.run("dpkg", "--remove", "acp-gateway")
            self.assertTrue((system.root / "var/lib/acp-gateway/private/log.sqlite").exists())
            # Beside the configuration and the data, the records of dpkg and systemd remain until `purge`.
            kept = ("/etc/acp-gateway", "/etc/default/acp-gateway", "/var/lib/acp-gateway", "/var/lib/dpkg/", "/var/lib/systemd/", "/etc/systemd/system/")
            self.assertEqual([path for path in self.left(system) if not path.startswith(kept)], [])
            system.run("dpkg", "--purge", "acp-gateway")
            self.assertEqual(self.left(system), [])

    def left(self, system):
        """The files of the package. `man` has a cache."""
        return system.run("find", "/", "-xdev", "-name", "*acp-gateway*", "-not", "-path", "/var/cache/man/*").split()

    def link(self, system):
        """A link of the service, as its operator gets it."""
        def link():
            done = attempt(*system.command("acp-gateway", "link", user="acp-gateway"))
            return re.fullmatch(r"(http://\S+)/#key=(\S+)\n", done.stdout)
        return until(link).groups()


class Script(unittest.TestCase):
    def test_script_installs_updates_and_removes(self):
        with System() as system:
            self.serve(system)
            system.run("useradd", "--create-home", "alice")
            url = "http://127.0.0.1:8000"
            home = system.root / "home/alice"

            (system.root / "srv" / ARCHIVE.name).write_bytes(b"another file")
            self.assertIn("checksum", system.fails("sh", "-c", self.script(url), user="alice"))
            self.assertFalse((home / ".local").exists())

            shutil.copy(ARCHIVE, system.root / "srv")
            for _ in ["install", "update"]:
                system.run("sh", "-c", self.script(url), user="alice")
                gateway = system.start("/home/alice/.local/bin/acp-gateway", "--print-link", user="alice")
                link = link_of(gateway)
                sessions = system.request(f"{link[0]}/v1/sessions", link[1])["sessions"]
                known = [each["sessionId"] for each in sessions]
                session = prompt(system.request, *link)
                system.run("pkill", "--exact", "--full", "/home/alice/.local/bin/acp-gateway --print-link")
                bounded(gateway, gateway.wait)
            self.assertEqual(len(known), 1)

            self.complete(system)
            self.read_pages(system)

            system.run("sh", "-c", self.script(url, "-s -- --remove"), user="alice")
            files = [path for path in home.rglob("*acp-gateway*") if path.is_file()]
            self.assertEqual(files, [])
            self.assertTrue((home / ".local/share/acp-gateway/private/log.sqlite").exists())
            self.assertTrue(session)

    def script(self, url, arguments=""):
        return f"curl -fsS {url}/install.sh | ACP_GATEWAY_RELEASES={url} sh {arguments}"

    def serve(self, system):
        for file in [FILES / "install.sh", FILES / "SHA256SUMS"]:
            shutil.copy(file, system.root / "srv")
        system.start("python3", "-m", "http.server", "--bind", "127.0.0.1", "--directory", system.root / "srv", "8000", host=True)
        until(lambda: attempt(*system.command("curl", "-fsS", "-o", "/dev/null", "http://127.0.0.1:8000")).returncode == 0)

    def complete(self, system):
        share = "/home/alice/.local/share"
        bash = f"""source {share}/bash-completion/completions/acp-gateway
            COMP_WORDS=(acp-gateway hea) COMP_CWORD=1
            $(complete -p acp-gateway | sed 's/.* -F \\([^ ]*\\) .*/\\1/') acp-gateway hea acp-gateway
            echo "${{COMPREPLY[0]}}" """
        self.assertEqual(system.run("bash", "-c", bash), "healthcheck\n")
        fish = f"source {share}/fish/vendor_completions.d/acp-gateway.fish; complete --do-complete 'acp-gateway hea'"
        self.assertIn("healthcheck", system.run("fish", "-c", fish))
        zsh = f"fpath=({share}/zsh/site-functions $fpath); autoload -Uz compinit; compinit -u -D; echo $_comps[acp-gateway]; autoload +X _acp-gateway"
        self.assertEqual(system.run("zsh", "-f", "-c", zsh), "_acp-gateway\n")

    def read_pages(self, system):
        pages = sorted((system.root / "home/alice/.local/share/man/man1").iterdir())
        self.assertGreater(len(pages), 20)
        for page in pages:
            path = f"/{page.relative_to(system.root)}"
            done = attempt(*system.command("man", "--warnings", "--local-file", path))
            self.assertEqual((done.returncode, done.stderr), (0, ""), path)
            self.assertIn("NAME", done.stdout)


def interrupt(process):
    """Sends the signal that a terminal sends to the processes of a command."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


def add_release(folder, url):
    """Adds the packages of the release to a registry of npm."""
    for file in FILES.glob("*.tgz"):
        with tarfile.open(file) as archive:
            manifest = json.load(archive.extractfile("package/package.json"))
        registry_copy.add_package(folder, manifest, pathlib.Path(shutil.copy(file, folder)), url)


class Npm(unittest.TestCase):
    def test_npx_starts_the_gateway(self):
        with contextlib.ExitStack() as stack:
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="acp-gateway-npm-")))
            registry = self.registry(stack, folder / "registry")
            environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "npm_config_registry": registry, "npm_config_cache": str(folder / "cache"),
                           "npm_config_update_notifier": "false", "ACP_GATEWAY__ISOLATION__ALLOW_ROOT_AGENTS": "true",
                           "ACP_GATEWAY__TIMEOUTS__DRAIN_TIMEOUT": "30s"}
            def start():
                gateway = started(stack, "npx", "--yes", "acp-gateway", "--print-link", cwd=folder, env=environment,
                                  stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                stack.callback(interrupt, gateway)
                return gateway, *link_of(gateway)
            def turns():
                return sorted(turn["status"] for turn in request(f"{url}/v1/sessions/{session}/prompts", key)["prompts"])
            def stop():
                interrupt(gateway)
                # The gateway has closed the other end when it has ended.
                self.assertEqual(bounded(gateway, gateway.stdout.read), "")
            gateway, url, key = start()
            session = prompt(request, url, key)
            request(f"{url}/v1/sessions/{session}/prompts", key, {"prompt": "/slow 3"})
            until(lambda: turns() == ["completed", "running"])
            # npx and the launcher pass the signal on, but this is one stop, so the turn ends.
            stop()
            with self.assertRaises(OSError):
                request(f"{url}/v1", key)
            gateway, url, key = start()
            self.assertEqual(turns(), ["completed", "completed"])
            stop()

    def test_npx_leads_to_an_answer_of_claude(self):
        with System() as system:
            registry_copy.add_node(system.root, STATE)
            folder = system.root / "srv"
            registry_copy.write(folder)
            add_release(folder, registry_copy.URL)
            system.start("node", registry_copy.SERVER, folder, registry_copy.PORT, host=True)
            until(lambda: attempt(*system.command("curl", "-fsS", "-o", "/dev/null", f"{registry_copy.URL}/registry.json")).returncode == 0)
            system.run("useradd", "--create-home", "alice")
            variables = [f"{name}={value}" for name, value in {**registry_copy.VARIABLES, **registry_copy.CLAUDE}.items()]

            began = time.monotonic()
            gateway = system.start("env", *variables, "npx", "--yes", "acp-gateway", "--print-link", user="alice")
            url, key = link_of(gateway)
            linked = time.monotonic()
            def send(path, body=None):
                return system.request(f"{url}{path}", key, body)
            download = registry_copy.install(send)
            registry_copy.ask(send)
            total = time.monotonic() - began
            print(f"link after {linked - began:.1f} s, answer of Claude after {total:.1f} s, of which npm downloads and unpacks Claude for {download:.1f} s")
            self.assertLess(total - download, 20)
            # A terminal sends this signal to all processes of the command.
            system.run("pkill", "--signal=INT", "--uid=alice", "--full", "acp-gateway --print-link")
            self.assertEqual(bounded(gateway, gateway.stdout.read), "")

    def registry(self, stack, folder):
        """A registry with the packages of the release."""
        folder.mkdir()
        handler = functools.partial(Quiet, directory=folder)
        server = stack.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=server.serve_forever).start()
        stack.callback(server.shutdown)
        url = f"http://127.0.0.1:{server.server_port}"
        add_release(folder, url)
        return url


class Foreign(unittest.TestCase):
    def test_program_for_the_other_architecture_runs(self):
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            run("tar", "-xzf", FOREIGN_ARCHIVE, "-C", folder, "--strip-components=1")
            program = [f"qemu-{FOREIGN}-static", f"{folder}/bin/acp-gateway"]
            self.assertEqual(run(*program, "--version"), f"acp-gateway {VERSION}\n")
            # Without support of the kernel, the program cannot start itself as a supervisor. So the test speaks to the demo agent.
            agent = started(stack, *program, "demo-agent", stdin=subprocess.PIPE)
            stack.callback(agent.stdin.close)
            answers = []
            def call(method, params):
                agent.stdin.write(json.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": params}) + "\n")
                agent.stdin.flush()
                while line := bounded(agent, agent.stdout.readline):
                    message = json.loads(line)
                    if message.get("id") == method:
                        return message["result"]
                    update = message.get("params", {}).get("update", {})
                    if update.get("sessionUpdate") == "agent_message_chunk":
                        answers.append(update["content"]["text"])
                raise AssertionError("the agent has ended")
            call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
            session = call("session/new", {"cwd": folder, "mcpServers": []})["sessionId"]
            call("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "Hello"}]})
            text = "".join(answers)
            self.assertTrue(text.startswith(ANSWER), text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
