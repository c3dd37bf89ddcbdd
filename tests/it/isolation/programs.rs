//! Programs that agents use, inside the isolation of the gateway: git, npx, uvx, python and node.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::attacks::expected_mechanism;
use super::ground::{Machine, User, open, order, setup, start};
use crate::real_agents::file;

const GIT: &str = "git init -q . && echo text >file && git add file
git -c user.name=agent -c user.email=agent@localhost commit -q -m first
git log --format=%s && git status --porcelain file";

/// A package in the folder of the session. npx installs it without network.
const NPX: &str = r#"mkdir tool
printf '{"name":"tool","version":"1.0.0","bin":"tool.js"}' >tool/package.json
printf '#!/usr/bin/env node\nconsole.log("npx runs " + process.argv[2]);\n' >tool/tool.js
chmod +x tool/tool.js
npm_config_update_notifier=false npx --offline --yes ./tool word"#;

/// A package in the folder of the session. uvx installs it without network.
const UVX: &str = r#"python3 - <<'PYTHON'
import zipfile
with zipfile.ZipFile("greet-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("greet.py", "def main():\n    print('uvx runs')\n")
    for name, text in {
        "METADATA": "Metadata-Version: 2.1\nName: greet\nVersion: 1.0\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": "[console_scripts]\ngreet = greet:main\n",
        "RECORD": "",
    }.items():
        wheel.writestr("greet-1.0.dist-info/" + name, text)
PYTHON
"$1" --offline --no-index --quiet --from ./greet-1.0-py3-none-any.whl greet"#;

const PYTHON: &str = "python3 -m venv --without-pip environment && environment/bin/python -c 'print(\"python runs\")'";

/// A server on loopback, which another process of the agent calls.
const NODE: &str = r#"cat >server.js <<'NODE'
const server = require("http").createServer((_, response) => response.end("served on loopback\n"));
server.listen(0, "127.0.0.1", () => {
  const { port } = server.address();
  require("child_process").execFile("python3", ["-c", `
import urllib.request
print(urllib.request.build_opener(urllib.request.ProxyHandler({})).open("http://127.0.0.1:${port}/").read().decode(), end="")
`], (error, stdout, stderr) => {
    process.stdout.write(stdout + stderr);
    server.close();
  });
});
NODE
node server.js"#;

/// A name, a script, and the expected output.
const PROGRAMS: [(&str, &str, &str); 5] = [
    ("git", GIT, "first\n"),
    ("npx", NPX, "npx runs word\n"),
    ("uvx", UVX, "uvx runs\n"),
    ("python", PYTHON, "python runs\n"),
    ("node", NODE, "served on loopback\n"),
];

/// Runs all programs in one session of an agent at this level.
async fn programs_work(user: User, machine: Machine, level: &str) {
    let folders = format!("folders = [{:?}]\n", file(".venv"));
    let gateway = start(setup(user, machine, level, &folders), user);
    let session = open(&gateway, &json!({ "agent": "hostile" })).await;
    assert_eq!(
        session.json["isolation"]["mechanism"],
        expected_mechanism(user, level, machine)
    );
    let cwd = session.cwd.to_str().expect("UTF-8");
    let uvx = file(".venv/bin/uvx");
    for (name, script, expected) in PROGRAMS {
        let script = format!("set -e; cd \"$0\"\n{script}");
        let run = json!({ "act": "run", "command": ["sh", "-c", script, cwd, uvx] });
        let ran = order(&gateway, &session, &run, "ran.json").await;
        assert_eq!(
            (&ran[0], &ran[1]),
            (&json!(0), &json!(expected)),
            "{name} {user:?} {machine:?} {level}: {ran}"
        );
    }
}

#[tokio::test]
async fn programs_work_for_the_agent_of_an_unprivileged_gateway_at_each_level() {
    if !User::Unprivileged.can_run() {
        return;
    }
    for (level, machine) in [
        ("off", Machine::Any),
        ("private", Machine::Namespaces),
        ("workspace", Machine::Namespaces),
        ("private", Machine::LandlockOnly),
        ("workspace", Machine::LandlockOnly),
    ] {
        programs_work(User::Unprivileged, machine, level).await;
    }
}

#[tokio::test]
async fn programs_work_for_the_agents_of_root_and_of_own_users() {
    for user in User::all()
        .into_iter()
        .filter(|user| *user != User::Unprivileged)
    {
        for machine in [Machine::Namespaces, Machine::LandlockOnly] {
            programs_work(user, machine, "workspace").await;
        }
    }
}

/// The shim starts a program in another folder, which a variable names because the agent has its own HOME.
#[tokio::test]
async fn shims_of_version_managers_start_their_programs() {
    const RUN: &str = "tool; echo x 2>/dev/null >\"$PYENV_ROOT/new\" || echo read-only";
    let user = User::Unprivileged;
    if !user.can_run() {
        return;
    }
    for machine in [Machine::Namespaces, Machine::LandlockOnly] {
        let gateway = setup(user, machine, "private", "").start_with(|folder| {
            let root = folder.join(".pyenv");
            for (name, script) in [
                ("shims/tool", "exec \"$PYENV_ROOT/libexec/pyenv\""),
                ("libexec/pyenv", "exec \"$PYENV_ROOT/versions/1/bin/tool\""),
                ("versions/1/bin/tool", "echo runs"),
            ] {
                let file = root.join(name);
                let parent = file.parent().expect("a folder");
                std::fs::create_dir_all(parent).expect("the folder is ours");
                std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("it is ours");
                std::fs::set_permissions(&file, Permissions::from_mode(0o755)).expect("it is ours");
            }
            user.own(folder);
            let path = format!(
                "{}:/usr/local/bin:/usr/bin:/bin",
                root.join("shims").display()
            );
            vec![("PATH", path.into())]
        });
        let session = open(&gateway, &json!({ "agent": "hostile" })).await;
        let run = json!({ "act": "run", "command": ["sh", "-c", RUN] });
        let ran = order(&gateway, &session, &run, "ran.json").await;
        assert_eq!(ran[1], "runs\nread-only\n", "{machine:?}: {ran}");
    }
}

/// The documentation names this limit.
#[tokio::test]
async fn pseudo_terminals_need_namespaces() {
    const OPEN: &str = "import os, pty; print(os.isatty(pty.openpty()[1]))";
    let user = User::Unprivileged;
    if !user.can_run() {
        return;
    }
    for (machine, works) in [(Machine::Namespaces, true), (Machine::LandlockOnly, false)] {
        let gateway = start(setup(user, machine, "private", ""), user);
        let session = open(&gateway, &json!({ "agent": "hostile" })).await;
        let run = json!({ "act": "run", "command": ["python3", "-c", OPEN] });
        let ran = order(&gateway, &session, &run, "ran.json").await;
        assert_eq!(ran[1] == "True\n", works, "{machine:?}: {ran}");
    }
}
