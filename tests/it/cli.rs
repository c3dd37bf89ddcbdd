//! The real binary: its subcommands, its messages, its exit codes.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod config_file;
mod json;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::gateway::NO_CONFIG_FILE;
use crate::support::places::gateway_program;

const PATIENCE: Duration = Duration::from_secs(20);

/// The binary with an environment of its own and a data folder.
#[expect(clippy::disallowed_methods, reason = "a test drives the real program")]
fn command(data: &Path) -> Command {
    let mut command = Command::new(gateway_program());
    command
        .env_clear()
        .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
        .env("ACP_GATEWAY_DATA", data)
        .stdin(Stdio::null());
    command
}

fn run(data: &Path, args: &[&str]) -> Output {
    command(data).args(args).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// The program under another name. Another process copies it. A file that this process writes stays open for a moment
/// in a child that another test starts, and an open file cannot be executed.
fn copy_to(program: &Path) {
    #[expect(clippy::disallowed_methods, reason = "a tool of the test's own")]
    let copied = Command::new("cp")
        .arg(gateway_program())
        .arg(program)
        .status();
    assert!(copied.unwrap().success());
}

/// A gateway that runs until it is dropped.
struct Gateway {
    child: Child,
    line: String,
}

impl Gateway {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        Self {
            child,
            line: line.trim_end().to_owned(),
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn exit(&mut self) -> Option<i32> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < until, "the gateway did not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
        }
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn check_prints_effective_values_and_hides_secrets() {
    let data = folder();
    let file = data.path().join("gateway.toml");
    fs::write(
        &file,
        "[agents.a]\ncommand = \"npx\"\nenv = { KEY = { from_env = \"SECRET\" } }\n",
    )
    .unwrap();
    let mut check = command(data.path());
    check
        .args(["check", "--listen", "127.0.0.1:9"])
        .arg("--config")
        .arg(&file)
        .env("SECRET", "canary-7f3a");
    let output = check.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("listen = \"127.0.0.1:9\"  # --listen\n"),
        "{}",
        stdout(&output)
    );
    let from = format!(
        "env = {{ KEY = {{ from_env = \"SECRET\" }} }}  # {}:3\n",
        file.display()
    );
    assert!(stdout(&output).contains(&from), "{}", stdout(&output));
    assert!(!stdout(&output).contains("canary") && !stderr(&output).contains("canary"));
    // It only looks.
    assert_eq!(fs::read_dir(data.path()).unwrap().count(), 1);

    fs::write(
        &file,
        "[agents.a]\ncomand = \"npx\"\n[agents.b]\nhome = 1\n",
    )
    .unwrap();
    let output = check.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let expected = format!(
        "acp-gateway: {0}:2: unknown key `agents.a.comand`; did you mean `command`?\n\
         acp-gateway: {0}:4: `agents.b.home` must be a string, not a number\n",
        file.display()
    );
    assert_eq!((stdout(&output), stderr(&output)), ("", expected.as_str()));
}

#[test]
fn check_reports_commands_that_are_not_on_path() {
    let data = folder();
    let file = data.path().join("gateway.toml");
    let text = "[agents.a]\ncommand = \"no-such-agent\"\n[mcp.b]\ncommand = \"no-such-server\"\n[mcp.c]\ncommand = \"/bin/sh\"\n";
    fs::write(&file, text).unwrap();
    let output = run(data.path(), &["check", "--config", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let warnings: Vec<_> = stdout(&output)
        .lines()
        .filter(|line| line.starts_with("# warning: ") && line.contains(".command: "))
        .collect();
    let [agent, server] = warnings[..] else {
        panic!("{warnings:?}")
    };
    assert!(
        agent.contains("agents.a.command: no-such-agent: ") && agent.contains("not found on PATH"),
        "{agent}"
    );
    assert!(
        server.contains("mcp.b.command: no-such-server: "),
        "{server}"
    );
}

#[test]
fn a_mistyped_command_line_is_2() {
    let data = folder();
    for args in [
        &["sevre"][..],
        &["--lisen", "x"],
        &["key"],
        &["key", "create"],
        &["key", "create", "a", "--scopes", "all"],
    ] {
        assert_eq!(run(data.path(), args).status.code(), Some(2), "{args:?}");
    }
    assert_eq!(fs::read_dir(data.path()).unwrap().count(), 0);
}

#[test]
fn help_and_errors_have_every_scope() {
    let data = folder();
    let wrong = run(data.path(), &["key", "create", "a", "--scopes", "all"]);
    let create = run(data.path(), &["key", "create", "--help"]);
    let update = run(data.path(), &["key", "update", "--help"]);
    for scope in [
        "read", "prompt", "approve", "files", "mcp", "fleet", "metrics", "admin",
    ] {
        for text in [stderr(&wrong), stdout(&create), stdout(&update)] {
            assert!(text.contains(scope), "{scope}: {text}");
        }
    }
}

#[test]
fn keys_are_made_listed_and_revoked() {
    let data = folder();
    let created = run(
        data.path(),
        &["key", "create", "alice", "--scopes", "read,prompt"],
    );
    assert!(created.status.success(), "{}", stderr(&created));
    let key = stdout(&created).trim_end();
    assert!(key.starts_with("acpg_") && key.len() == 48, "{key}");

    let list = run(data.path(), &["key", "list"]);
    let rows: Vec<Vec<&str>> = stdout(&list)
        .lines()
        .map(|row| row.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[0],
        [
            "ID", "NAME", "USER", "KIND", "SCOPES", "LIMITS", "CREATED", "EXPIRES", "LAST", "USED"
        ]
    );
    assert_eq!(
        rows[1][1..6],
        ["alice", "alice", "named", "read,prompt", "default"]
    );
    assert_eq!(rows[1][7..], ["never", "never"]);
    assert!(!stdout(&list).contains(&key[5..]));

    let id = rows[1][0].to_owned();
    let revoked = run(data.path(), &["key", "revoke", &id]);
    assert_eq!(stdout(&revoked), format!("revoked {id} (alice)\n"));
    let again = run(data.path(), &["key", "revoke", &id]);
    assert_eq!(
        (again.status.code(), stderr(&again)),
        (Some(1), "acp-gateway: no key has this id or name\n")
    );
    let reserved = run(data.path(), &["key", "create", "owner"]);
    assert_eq!(
        (reserved.status.code(), stderr(&reserved)),
        (
            Some(1),
            "acp-gateway: the user 'owner' is the person that runs the gateway: name the key and add `--user owner`\n"
        )
    );

    // Nothing readable at rest, and nothing for others.
    let private = data.path().join("private");
    assert_eq!(
        fs::metadata(&private).unwrap().permissions().mode() & 0o777,
        0o700
    );
    for entry in fs::read_dir(&private).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            assert_eq!(
                fs::metadata(&path).unwrap().permissions().mode() & 0o077,
                0,
                "{}",
                path.display()
            );
            let bytes = fs::read(&path).unwrap();
            assert!(
                !bytes
                    .windows(43)
                    .any(|window| window == &key.as_bytes()[5..]),
                "{}",
                path.display()
            );
        }
    }
}

/// A command that reads creates nothing, because the path may be a typing error.
#[test]
fn commands_that_read_do_not_create_the_data_folder() {
    let folder = folder();
    let typo = folder.path().join("typo");
    let backup = folder.path().join("backup");
    let config = folder.path().join("gateway.toml");
    fs::write(&config, "").unwrap();
    let backup = backup.to_str().unwrap();
    let config = config.to_str().unwrap();
    for (args, names_log) in [
        (&["key", "list"][..], true),
        (&["key", "revoke", "alice"], true),
        (&["key", "update", "alice", "--scopes", "read"], true),
        (&["audit", "verify"], true),
        (&["audit", "export"], true),
        (&["backup", backup], true),
        (&["restore", "/nonexistent/backup"], false),
        (&["agent", "list", "--config", config], false),
        (&["agent", "remove", "hello", "--config", config], false),
        (&["healthcheck"], false),
        (&["check"], false),
    ] {
        let output = run(&typo, args);
        assert!(!typo.exists(), "{args:?} created the folder");
        if names_log {
            let error = stderr(&output);
            assert_eq!(output.status.code(), Some(1), "{args:?}: {error}");
            assert!(
                error.contains("there is no log in") && error.contains("typo"),
                "{args:?}: {error}"
            );
        }
    }
}

#[test]
fn second_gateway_exits_with_a_message_and_the_first_continues() {
    let data = folder();
    let mut first = Gateway::start(
        command(data.path())
            .args(["--listen", "127.0.0.1:0"])
            .env("ACP_GATEWAY__TIMEOUTS__DRAIN_TIMEOUT", "60s"),
    );
    assert!(
        first.line.starts_with("http://127.0.0.1:") && first.line.contains("/#key=acpg_"),
        "{}",
        first.line
    );

    let second = run(data.path(), &["--listen", "127.0.0.1:0"]);
    assert_eq!(second.status.code(), Some(1));
    assert_eq!(stdout(&second), "");
    let expected = format!(
        "acp-gateway: another gateway uses the data folder {}: stop it first, or set another folder with --data DIR\n",
        data.path().display()
    );
    assert_eq!(stderr(&second), expected);

    // Keys can be made and listed beside it; the link's is among them.
    assert!(run(data.path(), &["key", "create", "bob"]).status.success());
    let list = run(data.path(), &["key", "list"]);
    assert!(
        stdout(&list).contains(" owner  link ") && stdout(&list).contains(" bob "),
        "{}",
        stdout(&list)
    );

    assert!(
        first.child.try_wait().unwrap().is_none(),
        "the first gateway ended"
    );
    // Without running turns a drain ends immediately.
    let signalled = Instant::now();
    first.signal(Signal::TERM);
    assert_eq!(first.exit(), Some(0));
    assert!(
        signalled.elapsed() < Duration::from_secs(15),
        "{:?}",
        signalled.elapsed()
    );
    // The folder is free again, also after a kill.
    let mut next = Gateway::start(command(data.path()).args(["--listen", "127.0.0.1:0"]));
    next.signal(Signal::KILL);
    assert_eq!(next.exit(), None);
    let mut again = Gateway::start(command(data.path()).args(["--listen", "127.0.0.1:0"]));
    assert!(again.line.contains("/#key="), "{}", again.line);
    again.signal(Signal::INT);
    assert_eq!(again.exit(), Some(0));
}

#[test]
fn configured_admin_key_is_never_printed() {
    let data = folder();
    let key = data.path().join("key");
    fs::write(&key, "an-operators-own-key-0123456789abcdef").unwrap();
    let mut serve = command(data.path());
    serve
        .args(["--listen", "127.0.0.1:0"])
        .env("ACP_GATEWAY_ADMIN_KEY_FILE", &key);
    let mut gateway = Gateway::start(&mut serve);
    assert!(!gateway.line.contains("key"), "{}", gateway.line);
    assert!(gateway.line.ends_with('/'), "{}", gateway.line);
    let list = run(data.path(), &["key", "list"]);
    assert_eq!(stdout(&list).lines().count(), 1, "{}", stdout(&list));
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.exit(), Some(0));
}

#[test]
fn port_in_use_is_reported() {
    let data = folder();
    let occupied = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = occupied.local_addr().unwrap().to_string();
    let output = run(data.path(), &["--listen", &address]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).starts_with(&format!(
            "acp-gateway: could not bind {address} (--listen ADDR sets another address): "
        )),
        "{}",
        stderr(&output)
    );
}

#[test]
fn service_manager_is_told_when_the_gateway_accepts_connections() {
    let data = folder();
    let socket = data.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut gateway = Gateway::start(
        command(data.path())
            .args(["--listen", "127.0.0.1:0"])
            .env("NOTIFY_SOCKET", &socket),
    );
    let mut message = [0; 64];
    let length = manager.recv(&mut message).unwrap();
    assert_eq!(&message[..length], b"READY=1");
    let port = gateway.line.split('/').nth(2).expect("an address");
    TcpStream::connect(port).expect("it accepts connections");
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.exit(), Some(0));
}

#[test]
fn data_folder_that_cannot_be_written_is_reported_with_the_option() {
    use std::os::unix::process::CommandExt as _;
    let folder = folder();
    let program = folder.path().join("acp-gateway");
    copy_to(&program);
    let home = folder.path().join("home");
    fs::create_dir(&home).unwrap();
    for path in [&*program, folder.path(), &home] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o555)).unwrap();
    }
    let default = home.join(".local/share/acp-gateway");
    let data = home.join("data");
    let data_option = ["serve", "--data", data.to_str().unwrap()];
    for (args, path) in [
        (&["serve"][..], &default),
        (&["key", "create", "alice"], &default),
        (&data_option, &data),
    ] {
        #[expect(clippy::disallowed_methods, reason = "a test drives the real program")]
        let mut command = Command::new(&program);
        command
            .args(args)
            .env_clear()
            .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
            .env("HOME", &home)
            .current_dir(&home)
            .stdin(Stdio::null());
        // Root can write everywhere.
        if rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        let output = command.output().unwrap();
        let expected = format!(
            "acp-gateway: could not create the folder {} (--data DIR sets another data folder): Permission denied",
            path.display()
        );
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let last = stderr(&output).lines().last().unwrap_or_default();
        assert!(last.starts_with(&expected), "{args:?}: {last}");
    }
    for path in [folder.path(), &home] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn healthcheck_distinguishes_ready_from_not_ready() {
    let data = folder();
    let answers = |answer: &'static str| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 1024];
                let read = stream.read(&mut request).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
                String::from_utf8_lossy(&request[..read]).into_owned()
            });
            let output = run(data.path(), &["healthcheck", "--listen", &address]);
            (output, server.join().unwrap())
        });
        assert!(
            server
                .1
                .starts_with(&format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\n")),
            "{}",
            server.1
        );
        server.0
    };
    assert!(answers("HTTP/1.1 200 OK\r\n\r\n").status.success());
    let draining = answers("HTTP/1.1 503 Service Unavailable\r\n\r\n");
    assert_eq!(draining.status.code(), Some(1));
    assert_eq!(
        stderr(&draining),
        "acp-gateway: not ready: HTTP/1.1 503 Service Unavailable\n"
    );
    // In a container only the gateway's own arguments contain the flag.
    let mut everywhere = command(data.path());
    everywhere
        .arg("healthcheck")
        .env("ACP_GATEWAY_LISTEN", "0.0.0.0:9");
    let output = everywhere.output().unwrap();
    assert!(
        stderr(&output).starts_with("acp-gateway: no response from 127.0.0.1:9: "),
        "{}",
        stderr(&output)
    );
    let nobody = run(data.path(), &["healthcheck", "--listen", "127.0.0.1:9"]);
    assert_eq!(nobody.status.code(), Some(1));
}

#[test]
fn check_runs_each_command_in_the_isolation_of_its_entry() {
    use std::os::unix::fs::PermissionsExt as _;
    let data = folder();
    let tools = folder();
    let versions = folder();
    let script = |folder: &TempDir, name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    };
    let real = script(&versions, "real", "echo 1.0");
    let shim = script(&tools, "shim", &format!("exec {real}"));
    let broken = script(&tools, "broken", "exec no-such-program");
    // These do not know the argument.
    let refuses = script(&tools, "refuses", "exit 2");
    let waits = script(&tools, "waits", "exec sleep 60");
    let file = data.path().join("gateway.toml");
    let warnings = |folders: &str| {
        let entries = format!(
            "isolation.allow_root_agents = true\n\
             [agents.shim]\ncommand = {shim:?}\nfolders = [{folders}]\n\
             [agents.broken]\ncommand = {broken:?}\n[agents.refuses]\ncommand = {refuses:?}\n\
             [agents.waits]\ncommand = {waits:?}\n[agents.open]\ncommand = {shim:?}\nisolation = \"off\"\n\
             [agents.translated]\ncommand = {broken:?}\ndialect = \"stream-json\"\n"
        );
        fs::write(&file, entries).unwrap();
        let mut check = command(data.path());
        check
            .env("PATH", "/usr/bin:/bin")
            .arg("check")
            .arg("--config")
            .arg(&file);
        let output = check.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let lines = stdout(&output).lines();
        let found = lines.filter(|line| line.starts_with("# warning: agents."));
        found.map(str::to_owned).collect::<Vec<_>>()
    };
    let found = warnings("");
    let [broken, shim, translated] = &found[..] else {
        panic!("{found:?}")
    };
    assert!(
        broken.contains("agents.broken.command: it exited with code 127: "),
        "{broken}"
    );
    // The check runs the command itself, and not its translation.
    assert!(
        translated.contains("agents.translated.command: it exited with code 127: "),
        "{translated}"
    );
    assert!(
        shim.contains("agents.shim.command: it starts without isolation, but not in the isolation of its entry")
            && shim.contains("agents.shim.folders"),
        "{shim}"
    );
    let found = warnings(&format!("{:?}", versions.path()));
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(
        fs::read_dir(data.path()).unwrap().count(),
        1,
        "it only looks"
    );
}

#[test]
fn openapi_prints_the_document() {
    let data = folder();
    let output = run(data.path(), &["openapi"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        document["paths"]
            .as_object()
            .is_some_and(|paths| paths.contains_key("/v1/sessions"))
    );
    assert_eq!(fs::read_dir(data.path()).unwrap().count(), 0);
}

#[test]
fn completions_and_help_list_every_subcommand() {
    let data = folder();
    for shell in ["bash", "zsh", "fish"] {
        let script = run(data.path(), &["completions", shell]);
        assert!(script.status.success());
        for word in [
            "check",
            "key",
            "healthcheck",
            "demo-agent",
            "openapi",
            "--workspace",
        ] {
            assert!(
                stdout(&script).contains(word.trim_start_matches('-')),
                "{shell} {word}"
            );
        }
    }
    let help = run(data.path(), &["--help"]);
    assert!(!stdout(&help).contains("supervisor"), "{}", stdout(&help));
    for option in [
        "--config",
        "--data",
        "--listen",
        "--workspace",
        "--insecure-http",
        "--print-link",
    ] {
        assert!(
            stdout(&help).contains(option),
            "{option}: {}",
            stdout(&help)
        );
        for command in [
            &["key", "create"][..],
            &["agent", "add"],
            &["check"],
            &["attach", "sign-in"],
        ] {
            let help = run(data.path(), &[command, &["--help"]].concat());
            let text = stdout(&help);
            assert!(
                !text.contains(&format!("  {option}")),
                "{command:?}: {text}"
            );
            assert!(
                text.contains("`acp-gateway --help` lists"),
                "{command:?}: {text}"
            );
        }
    }
    let own = run(data.path(), &["key", "create", "--help"]);
    assert!(
        stdout(&own).contains("--scopes") && stdout(&own).contains("--json"),
        "{}",
        stdout(&own)
    );
}

#[test]
fn commands_beside_a_gateway_need_no_secret_of_its_agents() {
    let data = folder();
    let file = data.path().join("gateway.toml");
    let secret = "{ from_env = \"NOT_HERE\" }";
    let text = format!(
        "server.listen = \"127.0.0.1:9\"\n[agents.a]\ncommand = \"npx\"\nenv = {{ KEY = {secret} }}\n\
         [mcp.b]\nurl = \"https://b.example\"\nheaders = {{ Authorization = {{ from_file = \"/not/here\" }} }}\n"
    );
    fs::write(&file, text).unwrap();
    let config = file.to_str().unwrap();
    let check = run(data.path(), &["check", "--config", config]);
    assert!(
        stderr(&check).contains("/not/here: cannot be read"),
        "{}",
        stderr(&check)
    );
    let created = run(data.path(), &["key", "create", "alice", "--config", config]);
    assert!(
        stdout(&created).starts_with("acpg_"),
        "{}",
        stderr(&created)
    );
    let target = data.path().join("backup");
    let target = target.to_str().unwrap();
    let backup = run(data.path(), &["backup", target, "--config", config]);
    assert!(backup.status.success(), "{}", stderr(&backup));
    let health = run(data.path(), &["healthcheck", "--config", config]);
    assert!(
        stderr(&health).starts_with("acp-gateway: no response from 127.0.0.1:9: "),
        "{}",
        stderr(&health)
    );
}

/// The kernel makes root the owner of `/proc/PID` if the process is not dumpable.
#[test]
fn no_command_with_the_gateways_environment_can_be_read_by_its_user() {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::CommandExt;
    let data = folder();
    // Root can read everything. A test that runs as root changes its user, and that user must be able to reach the
    // program.
    let program = data.path().join("acp-gateway");
    copy_to(&program);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(data.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let root = rustix::process::geteuid().is_root();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let owner = |args: &[&str], limit: Duration| {
        #[expect(clippy::disallowed_methods, reason = "a test drives the real program")]
        let mut command = Command::new(&program);
        command
            .args(args)
            .env_clear()
            .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
            .env("ACP_GATEWAY_DATA", data.path())
            .stdin(Stdio::piped());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if root {
            command.uid(65534).gid(65534);
        }
        let mut child = command.spawn().unwrap();
        let environment = format!("/proc/{}/environ", child.id());
        let until = Instant::now() + limit;
        let mut owner = u32::MAX;
        while owner != 0 && Instant::now() < until && child.try_wait().unwrap().is_none() {
            owner = fs::metadata(&environment).unwrap().uid();
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        owner
    };
    assert_eq!(owner(&["healthcheck", "--listen", &address], PATIENCE), 0);
    assert_ne!(
        owner(&["demo-agent"], Duration::from_secs(2)),
        0,
        "an agent is open to its user, so the test can see a difference"
    );
}

/// An update replaces the executable of a running gateway. The gateway still starts its own version for supervisors.
#[test]
fn gateway_continues_after_its_executable_was_replaced() {
    let data = folder();
    let program = data.path().join("acp-gateway");
    copy_to(&program);
    let config = data.path().join("gateway.toml");
    fs::write(
        &config,
        "[agents.demo]\nbuiltin = \"demo\"\npool = { max_size = 1, min_idle = 0 }\n",
    )
    .unwrap();
    #[expect(clippy::disallowed_methods, reason = "a test drives the real program")]
    let mut serve = Command::new(&program);
    serve
        .args(["--listen", "127.0.0.1:0", "--config"])
        .arg(&config)
        .env_clear()
        .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
        .stdin(Stdio::null());
    // Tests may run as root.
    serve.env("ACP_GATEWAY__ISOLATION__ALLOW_ROOT_AGENTS", "true");
    let mut gateway = Gateway::start(serve.env("ACP_GATEWAY_DATA", data.path()));
    let other = data.path().join("other");
    fs::write(&other, "#!/bin/false\n").unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&other, &program).unwrap();

    let (url, key) = gateway.line.split_once("/#key=").unwrap();
    let address = url.trim_start_matches("http://");
    let body = r#"{"agent":"demo"}"#;
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "POST /v1/sessions HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.exit(), Some(0));
}
