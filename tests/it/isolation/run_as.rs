//! Agents of a gateway that runs as root, with their own users (`isolation.run_as`).

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::{Method, StatusCode};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::attacks::attack;
use super::ground::{
    Machine, Opened, User, agents, at_home_of_agents, open, order, outside_tmp, run_by, setup,
    start, supervisor_of,
};
use crate::support::gateway::{NO_CONFIG_FILE, command};
use crate::support::places::{gateway_program, project};
use crate::support::wait::LONGEST;
use crate::support::{Gateway, Setup, eventually, is_alive};

const ALL: [(&str, Machine); 3] = [
    ("private", Machine::Namespaces),
    ("private", Machine::LandlockOnly),
    ("off", Machine::Any),
];

/// Whether this test can start a gateway as root whose agents have their own users. For other users,
/// `gateway_of_another_user_does_not_start` applies.
fn is_root() -> bool {
    geteuid().is_root() && User::run_as().can_run()
}

/// A gateway, and the user of the agent that starts first.
fn gateway(level: &str, machine: Machine, more: &str) -> (Gateway, u32) {
    started(machine, level, more, |setup| setup)
}

fn started(
    machine: Machine,
    level: &str,
    more: &str,
    change: impl FnOnce(Setup) -> Setup,
) -> (Gateway, u32) {
    let user = User::run_as();
    let User::RunAs(first) = user else {
        unreachable!("a range of users")
    };
    (
        start(change(setup(user, machine, level, more)), user),
        first,
    )
}

async fn hostile(gateway: &Gateway) -> Opened {
    open(gateway, &json!({ "agent": "hostile" })).await
}

/// Runs a shell command in the agent. Returns its status and its output.
async fn shell(gateway: &Gateway, session: &Opened, text: &str) -> (i64, String) {
    let run = json!({ "act": "run", "command": ["sh", "-c", text] });
    let ran = order(gateway, session, &run, "ran.json").await;
    let output = |at: usize| ran[at].as_str().expect("a text").to_owned();
    (ran[0].as_i64().expect("a status"), output(1) + &output(2))
}

/// Calls a client method of the gateway. Returns the result.
async fn call(gateway: &Gateway, session: &Opened, method: &str, params: Value) -> Value {
    let call = json!({ "act": "call", "method": method, "params": params });
    order(gateway, session, &call, "called.json").await
}

/// Runs a program in a terminal of the gateway. Returns its output.
async fn terminal(gateway: &Gateway, session: &Opened, words: &[&str], env: Value) -> String {
    let run = json!({ "act": "terminal", "command": words, "env": env });
    let ran: Value = order(gateway, session, &run, "terminal.json").await;
    ran["output"]
        .as_str()
        .unwrap_or_else(|| panic!("{ran}"))
        .to_owned()
}

/// The values of a line of `/proc/PID/status`.
fn status(pid: u32, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect("a line")
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

fn owner(path: &Path) -> (u32, u32) {
    let meta = std::fs::symlink_metadata(path).expect("it exists");
    (meta.uid(), meta.gid())
}

fn process(gateway: &Gateway, agent: &str) -> u32 {
    *agents(gateway, agent).first().expect("its process runs")
}

#[tokio::test]
async fn each_agent_has_its_own_user_without_groups_and_capabilities() {
    if !is_root() {
        return;
    }
    for (level, machine) in ALL.into_iter().chain([("workspace", Machine::Namespaces)]) {
        let (gateway, user) = gateway(level, machine, "");
        let session = hostile(&gateway).await;
        open(&gateway, &json!({ "agent": "sibling" })).await;
        for (agent, own) in [("hostile", user), ("sibling", user + 1)] {
            let pid = process(&gateway, agent);
            let ids = vec![own.to_string(); 4];
            assert_eq!(
                (status(pid, "Uid"), status(pid, "Gid")),
                (ids.clone(), ids),
                "{level} {machine:?}"
            );
            assert!(status(pid, "Groups").is_empty(), "{level} {machine:?}");
            for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
                assert_eq!(
                    status(pid, set),
                    ["0000000000000000"],
                    "{set} {level} {machine:?}"
                );
            }
            assert_eq!(status(pid, "NoNewPrivs"), ["1"]);
        }
        let recorded = |agent: &str, user: u32| json!({ "agent": agent, "userId": user });
        eventually("the audit events", LONGEST, || async {
            let page = gateway.get("/v1/audit").await;
            let events = page["events"].as_array().expect("a list");
            let applied = events
                .iter()
                .filter(|event| event["type"] == "isolation.applied");
            let users: Vec<Value> = applied
                .map(|event| json!({ "agent": event["agent"], "userId": event["userId"] }))
                .collect();
            (users == [recorded("hostile", user), recorded("sibling", user + 1)]).then_some(())
        })
        .await;
        // Descendants and terminals have the same user. They can open their output by name.
        let ids = "id -u; id -g; id -G; echo named >/dev/stderr; echo x >/dev/stdout";
        let expected = format!("{user}\n{user}\n{user}\n");
        let shown = terminal(&gateway, &session, &["sh", "-c", ids], json!([])).await;
        assert_eq!(
            shown,
            format!("{expected}named\nx\n"),
            "{level} {machine:?}"
        );
        let (code, shown) = shell(&gateway, &session, "id -u; id -g; id -G").await;
        assert_eq!((code, shown), (0, expected), "{level} {machine:?}");
        let own = json!({ "act": "run", "command": ["sh", "-c", "echo own >/proc/$PPID/fd/2"] });
        assert_eq!(
            order(&gateway, &session, &own, "ran.json").await[0],
            0,
            "{level} {machine:?}"
        );
    }
}

#[tokio::test]
async fn home_keeps_its_user_and_its_files_after_a_restart() {
    if !is_root() {
        return;
    }
    for (level, machine) in ALL {
        let (mut gateway, user) = gateway(level, machine, "");
        let session = hostile(&gateway).await;
        let write = "umask 077; echo kept >$HOME/file && stat -c %a $HOME/file && echo $HOME";
        let (code, shown) = shell(&gateway, &session, write).await;
        let home = PathBuf::from(shown.lines().last().expect("a line"));
        assert_eq!((code, shown.lines().next()), (0, Some("600")), "{shown}");
        assert_eq!(owner(&home.join("file")), (user, user));
        // Another session of the agent shares the home.
        let second = hostile(&gateway).await;
        assert_eq!(
            shell(&gateway, &second, "cat $HOME/file").await,
            (0, "kept\n".to_owned())
        );
        // Another agent has no access, also without isolation.
        let sibling = open(&gateway, &json!({ "agent": "sibling" })).await;
        let (code, shown) =
            shell(&gateway, &sibling, &format!("cat {}/file", home.display())).await;
        assert_ne!(code, 0, "{level} {machine:?}: {shown}");
        gateway.stop();
        gateway.start();
        // The other agent starts first, and does not get the user of the home.
        open(&gateway, &json!({ "agent": "sibling" })).await;
        let later = hostile(&gateway).await;
        assert_eq!(
            shell(&gateway, &later, "cat $HOME/file; id -u").await.1,
            format!("kept\n{user}\n")
        );
        assert_eq!(owner(&gateway.path("data").join("private")), (0, 0));
    }
}

#[tokio::test]
async fn agent_and_gateway_share_the_files_of_a_workspace() {
    if !is_root() {
        return;
    }
    for (level, machine) in ALL {
        let (gateway, user) = gateway(level, machine, "");
        let session = hostile(&gateway).await;
        let mode = std::fs::metadata(&session.cwd).expect("it exists").mode() & 0o777;
        assert_eq!((owner(&session.cwd), mode), ((user, user), 0o700));
        // A file of a client, in new folders.
        let path = format!("/v1/sessions/{}/files/new/folder/upload.txt", session.id);
        let put = gateway
            .request(Method::PUT, &path)
            .body("by a client\n")
            .send()
            .await
            .expect("an answer");
        assert_eq!(put.status(), StatusCode::CREATED);
        // A file that the agent wrote with the method of its client.
        let written = session.cwd.join("written.txt");
        let params = json!({ "path": written, "content": "by a method\n" });
        call(&gateway, &session, "fs/write_text_file", params).await;
        for file in ["new", "new/folder", "new/folder/upload.txt", "written.txt"] {
            assert_eq!(owner(&session.cwd.join(file)), (user, user), "{file}");
        }
        // The agent can change all of them, and create others beside them.
        let change = format!(
            "cd {} && echo more >>new/folder/upload.txt && echo more >>written.txt && mv written.txt new/ && \
             umask 077 && echo private >new/folder/private",
            session.cwd.display()
        );
        assert_eq!(
            shell(&gateway, &session, &change).await,
            (0, String::new()),
            "{level} {machine:?}"
        );
        // The gateway reads and replaces private files of the agent. They keep their owner and mode.
        let private = format!("/v1/sessions/{}/files/new/folder/private", session.id);
        let get = gateway
            .request(Method::GET, &private)
            .send()
            .await
            .expect("an answer");
        assert_eq!(get.text().await.expect("a body"), "private\n");
        let put = gateway
            .request(Method::PUT, &private)
            .body("replaced\n")
            .send()
            .await
            .expect("an answer");
        assert!(put.status().is_success(), "{put:?}");
        let read = "cat new/folder/private; stat -c %u:%a new/folder/private";
        let read = format!("cd {} && {read}", session.cwd.display());
        let (_, shown) = shell(&gateway, &session, &read).await;
        assert_eq!(shown, format!("replaced\n{user}:600\n"));
        // A second name of a file of another user does not open it for the agent.
        let foreign = session.cwd.join("foreign");
        std::fs::write(session.cwd.with_extension("outside"), "root's\n")
            .expect("root can write it");
        std::fs::hard_link(session.cwd.with_extension("outside"), &foreign)
            .expect("one file system");
        let get = format!("/v1/sessions/{}/files/foreign", session.id);
        let get = gateway
            .request(Method::GET, &get)
            .send()
            .await
            .expect("an answer");
        assert_eq!(get.status(), StatusCode::FORBIDDEN, "{level} {machine:?}");
        // The end of the session removes everything.
        let path = format!("/v1/sessions/{}", session.id);
        let deleted = gateway
            .request(Method::DELETE, &path)
            .send()
            .await
            .expect("an answer");
        assert!(deleted.status().is_success(), "{deleted:?}");
        eventually("the end of the workspace", LONGEST, || async {
            (!session.cwd.exists()).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn other_users_protect_the_gateway_and_siblings_without_isolation() {
    if !is_root() {
        return;
    }
    let outcomes = attack(User::run_as(), Machine::Any, "off").await;
    for name in [
        "signal the gateway",
        "trace the gateway (ptrace)",
        "read the environment of the gateway",
        "read the memory of the gateway (/proc/PID/mem)",
        "signal the own supervisor",
        "trace the own supervisor (ptrace)",
        "signal another agent",
        "trace another agent (ptrace)",
        "read the environment of another agent",
        "read the memory of another agent (process_vm_readv)",
        "write to the stdin of another agent (/proc/PID/fd)",
        "read a private file",
        "write to the database",
        "create a file in the home of another agent",
        "create a file in the workspace of another session",
    ] {
        assert_eq!(
            outcomes.0.get(name).map(String::as_str),
            Some("denied"),
            "{name}"
        );
    }
}

async fn refused(gateway: &Gateway, body: &Value) -> String {
    let (status, problem) = gateway.post("/v1/sessions", body).await;
    assert_ne!(status, StatusCode::CREATED, "{problem}");
    problem.to_string()
}

#[tokio::test]
async fn agent_without_a_free_user_does_not_start() {
    if !is_root() {
        return;
    }
    let User::RunAs(user) = User::run_as() else {
        unreachable!("a range of users")
    };
    let one = format!("isolation.run_as = \"{user}-{user}\"");
    let one = setup(User::Root, Machine::Namespaces, "private", "").settings(&one);
    let gateway = start(one, User::RunAs(user));
    hostile(&gateway).await;
    let problem = refused(&gateway, &json!({ "agent": "sibling" })).await;
    assert!(
        problem.contains("is used up") && problem.contains(&format!("{user}-{user}")),
        "{problem}"
    );
    // The home that has the user still works.
    hostile(&gateway).await;
}

#[tokio::test]
async fn home_of_the_operator_is_refused() {
    if !is_root() {
        return;
    }
    let (gateway, _) = gateway("private", Machine::Namespaces, "home = \"user\"\n");
    let before = owner(&gateway.path(""));
    let problem = refused(&gateway, &json!({ "agent": "hostile" })).await;
    assert!(
        problem.contains("isolation.run_as") && problem.contains("home = \\\"own\\\""),
        "{problem}"
    );
    assert_eq!(owner(&gateway.path("")), before);
}

/// A folder of another user, which `mode` opens or closes.
fn folder_of_a_client(mode: u32) -> (TempDir, PathBuf) {
    let root = tempfile::tempdir_in(outside_tmp()).expect("a folder");
    std::fs::set_permissions(root.path(), Permissions::from_mode(0o755))
        .expect("the folder is ours");
    let project = root.path().join("project");
    std::fs::create_dir(&project).expect("the folder is ours");
    std::fs::write(project.join("file"), "of a user\n").expect("the folder is ours");
    chown(&project, Some(4321), Some(4321)).expect("root can change the owner");
    std::fs::set_permissions(&project, Permissions::from_mode(mode)).expect("the folder is ours");
    (root, project)
}

#[tokio::test]
async fn folder_of_a_client_keeps_its_owner_and_needs_permissions() {
    if !is_root() {
        return;
    }
    let idle = "pool = { max_size = 4, min_idle = 1 }\n";
    for (machine, more) in [
        (Machine::Namespaces, ""),
        (Machine::Namespaces, idle),
        (Machine::LandlockOnly, ""),
    ] {
        let (root, project) = folder_of_a_client(0o700);
        let allow = format!("workspaces.allow = [{:?}]", root.path());
        let (gateway, _) = started(machine, "private", more, |setup| setup.settings(&allow));
        if !more.is_empty() {
            eventually("an idle process", LONGEST, || async {
                agents(&gateway, "hostile").first().copied()
            })
            .await;
        }
        let body = json!({ "agent": "hostile", "cwd": project });
        let problem = refused(&gateway, &body).await;
        let expected = format!(
            "of `isolation.run_as` cannot use the folder {}",
            project.display()
        );
        assert!(problem.contains(&expected), "{machine:?} {more}: {problem}");
        std::fs::set_permissions(&project, Permissions::from_mode(0o755))
            .expect("the folder is ours");
        let session = open(&gateway, &body).await;
        // It can read the folder, but not write its result there.
        let file = project.join("file");
        let copy = json!({ "act": "run", "command": ["sh", "-c", "exit 0"], "cwd": project });
        let turn = gateway.turn(&session.id, &copy.to_string()).await;
        assert_ne!(turn["stopReason"], "end_turn", "{turn}");
        let shown = format!("cat {} >$HOME/copy", file.display());
        let home = hostile(&gateway).await;
        assert_ne!(
            shell(&gateway, &home, &shown).await.0,
            0,
            "another session has no access to the folder"
        );
        assert_eq!(
            (owner(&project), owner(&file)),
            ((4321, 4321), (0, 0)),
            "{machine:?} {more}"
        );
    }
}

#[tokio::test]
async fn agent_can_create_its_own_namespaces() {
    if !is_root() {
        return;
    }
    let (gateway, _) = gateway("private", Machine::Namespaces, "");
    let session = hostile(&gateway).await;
    for words in [
        "unshare --user --map-root-user true",
        "unshare --user --map-root-user --mount --pid --fork --mount-proc true",
    ] {
        assert_eq!(
            shell(&gateway, &session, words).await,
            (0, String::new()),
            "{words}"
        );
    }
}

#[tokio::test]
async fn agent_does_not_survive_a_killed_supervisor_or_gateway() {
    if !is_root() {
        return;
    }
    for (level, machine) in ALL {
        for kill_gateway in [false, true] {
            let (mut gateway, _) = gateway(level, machine, "");
            let session = hostile(&gateway).await;
            let agent = process(&gateway, "hostile");
            // It does not notice the end of its stdin.
            let sleep = json!({ "act": "sleep", "cwd": session.cwd });
            gateway.prompt(&session.id, &sleep.to_string()).await;
            let sleeps = session.cwd.join("sleeps");
            eventually("a sleeping agent", LONGEST, || async {
                sleeps.exists().then_some(())
            })
            .await;
            if kill_gateway {
                gateway.kill();
            } else {
                let pid = supervisor_of(&gateway, agent).cast_signed();
                kill_process(Pid::from_raw(pid).expect("a pid"), Signal::KILL).expect("it runs");
            }
            eventually("the end of the agent", Duration::from_secs(10), || async {
                (!is_alive(agent) && at_home_of_agents(&gateway).is_empty()).then_some(())
            })
            .await;
        }
    }
}

#[tokio::test]
async fn range_is_reported_at_the_start_and_by_check() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.toml");
    let users = User::run_as().range().expect("a range");
    std::fs::write(&file, format!("isolation.run_as = {users:?}\n")).expect("the folder is ours");
    let mut check = command(gateway_program());
    check
        .args(["check", "--data"])
        .arg(folder.path())
        .arg("--config")
        .arg(&file);
    let shown = check.output().expect("the binary was built");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains(&format!("run_as = {users:?}")), "{shown}");
    assert_eq!(
        shown.contains("only a gateway that runs as root"),
        !geteuid().is_root(),
        "{shown}"
    );
    if is_root() {
        let (gateway, user) = gateway("private", Machine::Any, "");
        let reported = format!("\"run_as\":\"{user}-");
        eventually("the report of the start", LONGEST, || async {
            gateway.log().contains(&reported).then_some(())
        })
        .await;
    }
}

#[test]
fn gateway_of_another_user_does_not_start() {
    if !User::Unprivileged.can_run() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    User::Unprivileged.own(folder.path());
    let mut words = User::Unprivileged.words();
    words.push(gateway_program().to_owned());
    let mut serve = command(&words[0]);
    serve
        .args(&words[1..])
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(folder.path().join("data"));
    serve
        .env("HOME", folder.path())
        .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
        .env("ACP_GATEWAY__ISOLATION__RUN_AS", "300000-300009");
    let ended = serve.output().expect("it ends");
    let text = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success(), "{text}");
    assert!(
        text.contains("`isolation.run_as` needs a gateway that runs as root"),
        "{text}"
    );
}

#[tokio::test]
async fn gateway_without_the_capabilities_does_not_start() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut serve = command("setpriv");
    serve.args(["--bounding-set=-setuid,-chown", "--inh-caps=-setuid,-chown"]);
    serve.args([
        gateway_program(),
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
    ]);
    serve
        .arg(folder.path().join("data"))
        .env("HOME", folder.path())
        .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1);
    let ended = serve
        .env("ACP_GATEWAY__ISOLATION__RUN_AS", "300000-300009")
        .output()
        .expect("it ends");
    let text = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(
        !ended.status.success() && text.contains("CAP_CHOWN, CAP_SETUID"),
        "{text}"
    );
}

#[tokio::test]
async fn capabilities_of_the_documented_container_suffice() {
    if !is_root() {
        return;
    }
    let guide = project().join("docs/guides/docker.md");
    let guide = std::fs::read_to_string(guide).expect("the guide exists");
    let added = guide
        .split_once("cap_add: [")
        .and_then(|(_, rest)| rest.split_once(']'))
        .expect("a list")
        .0;
    let kept = format!("-all,+{}", added.to_lowercase().replace(", ", ",+"));
    let limited = run_by(User::Root, Machine::LandlockOnly);
    let bounding = format!("--bounding-set={kept}");
    let words: Vec<&str> = ["setpriv", &bounding]
        .into_iter()
        .chain(limited.iter().map(String::as_str))
        .collect();
    for level in ["private", "off"] {
        let (gateway, user) = started(Machine::LandlockOnly, level, "", |setup| {
            setup.run_by(&words)
        });
        let session = hostile(&gateway).await;
        let (code, shown) = shell(&gateway, &session, "echo x >$HOME/file && id -u").await;
        assert_eq!((code, shown), (0, format!("{user}\n")), "{level}");
        gateway
            .post(&format!("/v1/sessions/{}/close", session.id), &json!({}))
            .await;
        eventually("the end of the agent", LONGEST, || async {
            at_home_of_agents(&gateway).is_empty().then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn variables_of_an_agent_do_not_reach_its_supervisors() {
    for user in User::all() {
        for (level, machine) in ALL {
            let gateway = start(setup(user, machine, level, ""), user);
            let session = hostile(&gateway).await;
            // The linker of a program writes a file for each program that loads libraries with this variable.
            let loads = session.cwd.join("loads");
            let variable = |name: &str, value: &str| json!({ "name": name, "value": value });
            let env = json!([
                variable("LD_DEBUG", "files"),
                variable("LD_DEBUG_OUTPUT", loads.to_str().expect("a path")),
                variable("OWN", "a value"),
            ]);
            let shown = terminal(
                &gateway,
                &session,
                &["sh", "-c", "echo $OWN $AGENT_NAME"],
                env,
            )
            .await;
            assert_eq!(shown, "a value hostile\n");
            let files = session.cwd.read_dir().expect("the folder exists");
            let files = files.map(|entry| entry.expect("an entry").path());
            let texts: Vec<String> = files
                .filter(|path| path.to_string_lossy().contains("/loads."))
                .map(|path| std::fs::read_to_string(path).expect("a text"))
                .collect();
            let text = texts.concat();
            assert!(
                text.contains("libc.so"),
                "the program loaded its libraries: {text:?}"
            );
            assert!(
                !text.contains("/proc/self/exe"),
                "{user:?} {level} {machine:?}: {text}"
            );
        }
    }
}
