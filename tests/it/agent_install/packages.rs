//! Archives and packages with a small agent, made with the tools of the machine.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::support::gateway::command;

/// An ACP agent in Python that answers a prompt with its variable `HELLO`.
pub(super) const AGENT: &str = r#"
import json, os, sys

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def main():
    for line in sys.stdin:
        message = json.loads(line)
        method, number = message.get("method"), message.get("id")
        if method == "initialize":
            info = {"name": "hello", "version": "1.0.0"}
            send(id=number, result={"protocolVersion": 1, "agentInfo": info, "agentCapabilities": {}})
        elif method == "session/new":
            send(id=number, result={"sessionId": "s"})
        elif method == "session/prompt":
            text = {"type": "text", "text": "hello from " + os.environ["HELLO"]}
            update = {"sessionUpdate": "agent_message_chunk", "content": text}
            send(method="session/update", params={"sessionId": "s", "update": update})
            send(id=number, result={"stopReason": "end_turn"})
        elif number is not None:
            send(id=number, error={"code": -32601, "message": "unknown"})
"#;

fn run(program: &str, arguments: &[&str], folder: &Path) {
    let done = command(program)
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("it runs");
    assert!(
        done.status.success(),
        "{program}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// The agent as one executable file.
pub(super) fn executable() -> String {
    format!("#!/usr/bin/env python3\n{AGENT}\nmain()\n")
}

/// An archive with the executable file `bin/hello`.
pub(super) fn binary_archive(archive: &Path, executable: &str) -> PathBuf {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).expect("the folder is ours");
    let hello = bin.join("hello");
    fs::write(&hello, executable).expect("the folder is ours");
    fs::set_permissions(&hello, Permissions::from_mode(0o755)).expect("the file is ours");
    run(
        "tar",
        &["czf", archive.to_str().expect("UTF-8"), "bin"],
        folder.path(),
    );
    archive.to_owned()
}

pub(super) fn sha256(file: &Path) -> String {
    let done = command("sha256sum").arg(file).output().expect("it runs");
    String::from_utf8_lossy(&done.stdout)
        .split(' ')
        .next()
        .expect("a hash")
        .to_owned()
}

/// A wheel with the agent and its program `hello-agent`.
pub(super) fn wheel(folder: &Path, version: &str) {
    let script = r#"
import sys, zipfile
folder, version, agent = sys.argv[1:]
info = f"hello_agent-{version}.dist-info"
files = {
    "hello_agent.py": agent,
    f"{info}/METADATA": f"Metadata-Version: 2.1\nName: hello-agent\nVersion: {version}\n",
    f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{info}/entry_points.txt": "[console_scripts]\nhello-agent = hello_agent:main\n",
}
files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
with zipfile.ZipFile(f"{folder}/hello_agent-{version}-py3-none-any.whl", "w") as wheel:
    for name, text in files.items():
        wheel.writestr(name, text)
"#;
    run(
        "python3",
        &[
            "-c",
            script,
            folder.to_str().expect("UTF-8"),
            version,
            AGENT,
        ],
        folder,
    );
}

/// An archive with an entry outside of its folder.
pub(super) fn escaping_zip(archive: &Path) {
    let script =
        "import sys, zipfile\nzipfile.ZipFile(sys.argv[1], 'w').writestr('../../evil', 'x')\n";
    let folder = archive.parent().expect("a folder");
    run(
        "python3",
        &["-c", script, archive.to_str().expect("UTF-8")],
        folder,
    );
}
