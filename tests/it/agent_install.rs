//! `agent add` and its neighbours: agents of a registry on this machine, run by a gateway afterwards.

mod npm;
mod over_http;
mod packages;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Output, Stdio};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Signal, geteuid};
use serde_json::{Value, json};

use crate::support::gateway::{binary, command};
use crate::support::terminal::terminal;
use crate::support::wait::LONGEST;
use crate::support::{Gateway, Setup, eventually};
use packages::{binary_archive, executable, sha256, wheel};

/// The result of a command.
struct Ran {
    ok: bool,
    text: String,
    /// The output on stdout, if it is JSON.
    document: Value,
}

fn agent_command(gateway: &Gateway, arguments: &[&str]) -> std::process::Command {
    let mut command = command(binary().to_str().expect("UTF-8"));
    command
        .arg("agent")
        .args(arguments)
        .arg("--config")
        .arg(gateway.path("config.toml"))
        .arg("--data")
        .arg(gateway.path("data"))
        // Tests may run as root.
        .env("ACP_GATEWAY__ISOLATION__ALLOW_ROOT_AGENTS", "true")
        .env("HOME", gateway.path(""))
        .env("ACP_GATEWAY_LOG", "warn");
    command
}

/// Runs `acp-gateway agent` with the configuration of the gateway.
fn agent(gateway: &Gateway, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
    let Output {
        status,
        stdout,
        stderr,
    } = agent_command(gateway, arguments)
        .envs(variables.iter().copied())
        .output()
        .expect("it runs");
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr)
    );
    Ran {
        ok: status.success(),
        text,
        document: serde_json::from_slice(&stdout).unwrap_or_default(),
    }
}

fn entry(id: &str, version: &str, distribution: &Value) -> Value {
    json!({ "id": id, "name": "Hello", "version": version, "description": "Says hello", "distribution": distribution, "icon": "x.svg" })
}

/// Writes a registry with these entries. Returns its path.
fn registry(gateway: &Gateway, entries: &[Value]) -> String {
    let path = gateway.path("registry.json");
    let text = json!({ "version": "1.0.0", "agents": entries, "extensions": [] }).to_string();
    fs::write(&path, text).expect("the folder is ours");
    path.to_str().expect("UTF-8").to_owned()
}

fn binary_entry(version: &str, archive: &str, hash: Option<&str>) -> Value {
    let target = format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH);
    let mut binary =
        json!({ "archive": archive, "cmd": "./bin/hello", "env": { "HELLO": "world" } });
    if let Some(hash) = hash {
        binary["sha256"] = json!(hash);
    }
    entry("hello", version, &json!({ "binary": { target: binary } }))
}

fn gateway() -> Gateway {
    Setup::fake(&[]).start()
}

/// Lets the gateway read its configuration, and runs a turn of the agent.
async fn runs(gateway: &Gateway, name: &str) -> String {
    gateway.signal(Signal::HUP);
    eventually("the agent is known", LONGEST, || async {
        let path = format!("/v1/agents/{name}");
        let response = gateway
            .request(reqwest::Method::GET, &path)
            .send()
            .await
            .ok()?;
        (response.status() == 200).then_some(())
    })
    .await;
    let session = gateway.session(name).await;
    let end = gateway.turn(&session, "echo hello").await;
    end["text"].as_str().expect("a text").to_owned()
}

fn is_installed(gateway: &Gateway, id: &str) -> bool {
    gateway.path("data/agents").join(id).exists()
}

/// A path in a registry on this machine may name anything.
#[tokio::test]
async fn archive_or_registry_that_is_no_regular_file_is_rejected_at_once() {
    let gateway = gateway();
    let pipe = gateway.path("pipe.tar.gz");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
    for archive in ["pipe.tar.gz", "/dev/zero", "data"] {
        let file = registry(&gateway, &[binary_entry("1.0.0", archive, None)]);
        let added = agent(&gateway, &["add", "hello", "--registry", &file], &[]);
        assert!(
            !added.ok && added.text.contains("not a regular file"),
            "{archive}: {}",
            added.text
        );
        assert!(!is_installed(&gateway, "hello"), "{archive}");
    }
    let pipe = pipe.to_str().expect("UTF-8");
    let found = agent(&gateway, &["search", "x", "--registry", pipe], &[]);
    assert!(
        !found.ok && found.text.contains("not a regular file"),
        "{}",
        found.text
    );
}

#[tokio::test]
async fn binary_agent_is_installed_with_its_checksum_and_runs() {
    let gateway = gateway();
    let archive = binary_archive(&gateway.path("hello.tar.gz"), &executable());
    let hash = sha256(&archive);
    let file = registry(
        &gateway,
        &[binary_entry("1.0.0", "hello.tar.gz", Some(&hash))],
    );
    let found = agent(&gateway, &["search", "hello", "--registry", &file], &[]);
    assert!(
        found.ok && found.text.contains("1.0.0") && found.text.contains("binary"),
        "{}",
        found.text
    );
    let added = agent(&gateway, &["add", "hello", "--registry", &file], &[]);
    assert!(added.ok, "{}", added.text);
    for part in [
        &*format!("sha256 {hash}"),
        "[agents.hello]",
        "it answers as",
    ] {
        assert!(added.text.contains(part), "{part}: {}", added.text);
    }
    assert_eq!(runs(&gateway, "hello").await, "hello from world");
    let listed = agent(&gateway, &["list"], &[]);
    assert!(
        listed.text.contains("hello") && listed.text.contains("binary"),
        "{}",
        listed.text
    );

    // A second installation needs `update`, and an update to the same version changes nothing.
    let again = agent(&gateway, &["add", "hello", "--registry", &file], &[]);
    assert!(
        !again.ok && again.text.contains("agent update hello"),
        "{}",
        again.text
    );
    let same = agent(&gateway, &["update", "hello", "--registry", &file], &[]);
    assert!(
        same.ok && same.text.contains("is the version of the registry"),
        "{}",
        same.text
    );
    let file = registry(
        &gateway,
        &[binary_entry("1.1.0", "hello.tar.gz", Some(&hash))],
    );
    let before = fs::read_to_string(gateway.path("config.toml")).expect("a file");
    for attempt in [
        "the first",
        "after one that ended before it wrote the entry",
    ] {
        fs::write(gateway.path("config.toml"), &before).expect("a file");
        let updated = agent(&gateway, &["update", "hello", "--registry", &file], &[]);
        assert!(
            updated.ok && updated.text.contains("version 1.0.0 stays"),
            "{attempt}: {}",
            updated.text
        );
    }
    let config = fs::read_to_string(gateway.path("config.toml")).expect("a file");
    assert!(
        config.contains("agents/hello/1.1.0/bin/hello") && config.contains("HELLO"),
        "{config}"
    );
    assert_eq!(runs(&gateway, "hello").await, "hello from world");

    let removed = agent(&gateway, &["remove", "hello"], &[]);
    assert!(
        removed.ok && removed.text.contains("its entry"),
        "{}",
        removed.text
    );
    assert!(!is_installed(&gateway, "hello"));
    let config = fs::read_to_string(gateway.path("config.toml")).expect("a file");
    assert!(
        !config.contains("agents.hello") && config.contains("agents.fake"),
        "{config}"
    );
}

#[tokio::test]
async fn wrong_checksums_and_versions_install_nothing() {
    let gateway = gateway();
    let before = fs::read_to_string(gateway.path("config.toml")).expect("a file");
    let hash = sha256(&binary_archive(
        &gateway.path("hello.tar.gz"),
        &executable(),
    ));
    let wrong = "0".repeat(64);
    let rejected = |entries: &[Value], arguments: &[&str], reason: &str| {
        let file = registry(&gateway, entries);
        let ran = agent(&gateway, &[arguments, &["--registry", &file]].concat(), &[]);
        assert!(
            !ran.ok && ran.text.contains(reason),
            "{reason}: {}",
            ran.text
        );
        assert!(!is_installed(&gateway, "hello"), "{reason}");
        let after = fs::read_to_string(gateway.path("config.toml")).expect("a file");
        assert_eq!(after, before, "{reason}");
    };
    let good = binary_entry("1.0.0", "hello.tar.gz", Some(&hash));
    rejected(
        &[binary_entry("1.0.0", "hello.tar.gz", Some(&wrong))],
        &["add", "hello"],
        &hash,
    );
    rejected(
        std::slice::from_ref(&good),
        &["add", "hello", "--sha256", &wrong],
        &wrong,
    );
    rejected(
        std::slice::from_ref(&good),
        &["add", "hello@1.0.1"],
        "has version 1.0.0 of hello, not 1.0.1",
    );
    rejected(std::slice::from_ref(&good), &["add", "other"], "no agent");
    rejected(
        std::slice::from_ref(&good),
        &["add", "hello", "--kind", "npx"],
        "no distribution",
    );
    rejected(
        std::slice::from_ref(&good),
        &["add", "hello", "--name", "fake"],
        "--name",
    );
    rejected(
        &[binary_entry("../../x", "hello.tar.gz", None)],
        &["add", "hello"],
        "`version`",
    );
    rejected(
        &[binary_entry("1.0.0", "absent.tar.gz", None)],
        &["add", "hello"],
        "absent.tar.gz",
    );
    rejected(
        &[binary_entry("1.0.0", "http://files.example/x", None)],
        &["add", "hello"],
        "https",
    );
    // An agent that does not answer.
    binary_archive(&gateway.path("silent.tar.gz"), "#!/bin/false\n");
    rejected(
        &[binary_entry("1.0.0", "silent.tar.gz", None)],
        &["add", "hello"],
        "ended before it answered",
    );
}

#[tokio::test]
async fn npx_agent_is_installed_without_install_scripts() {
    let gateway = gateway();
    let marker = gateway.path("marker");
    let server = npm::serve("1.0.0", &marker);
    let npx = json!({ "npx": { "package": "hello-agent@1.0.0", "args": ["--acp"], "env": { "HELLO": "npm" } } });
    let file = registry(&gateway, &[entry("hello", "1.0.0", &npx)]);
    let variables = [
        ("npm_config_registry", &*server.url),
        (
            "npm_config_cache",
            gateway.path("cache").to_str().expect("UTF-8"),
        ),
    ]
    .map(|(name, value)| (name, value.to_owned()));
    let variables: Vec<_> = variables
        .iter()
        .map(|(name, value)| (*name, &**value))
        .collect();
    let added = agent(&gateway, &["add", "hello", "--registry", &file], &variables);
    assert!(
        added.ok && added.text.contains("sign-in: Log in"),
        "{}",
        added.text
    );
    assert!(!marker.exists(), "no install script ran");
    assert_eq!(runs(&gateway, "hello").await, "hello from npm");
    assert!(agent(&gateway, &["remove", "hello"], &[]).ok);
    let added = agent(
        &gateway,
        &["add", "hello", "--registry", &file, "--allow-scripts"],
        &variables,
    );
    assert!(added.ok && marker.exists(), "{}", added.text);
}

#[tokio::test]
async fn package_of_another_version_is_rejected() {
    let gateway = gateway();
    let server = npm::serve("1.0.1", &gateway.path("marker"));
    let npx = json!({ "npx": { "package": "hello-agent@1.0.0" } });
    let file = registry(&gateway, &[entry("hello", "1.0.0", &npx)]);
    let cache = gateway.path("cache").to_str().expect("UTF-8").to_owned();
    let variables = [
        ("npm_config_registry", &*server.url),
        ("npm_config_cache", &*cache),
    ];
    let ran = agent(&gateway, &["add", "hello", "--registry", &file], &variables);
    assert!(
        !ran.ok && ran.text.contains("1.0.1 of hello-agent, not 1.0.0"),
        "{}",
        ran.text
    );
    assert!(!is_installed(&gateway, "hello"));
    let range = json!({ "npx": { "package": "hello-agent@^1.0.0" } });
    let file = registry(&gateway, &[entry("hello", "1.0.0", &range)]);
    let ran = agent(&gateway, &["add", "hello", "--registry", &file], &variables);
    assert!(
        !ran.ok && ran.text.contains("exact version"),
        "{}",
        ran.text
    );
}

#[tokio::test]
async fn uvx_agent_is_installed_from_a_wheel() {
    let gateway = gateway();
    let wheels = gateway.path("wheels");
    fs::create_dir(&wheels).expect("the folder is ours");
    wheel(&wheels, "1.0.0");
    let uvx = |package: &str| json!({ "uvx": { "package": package, "env": { "HELLO": "wheel" } } });
    let file = registry(
        &gateway,
        &[entry("hello", "1.0.0", &uvx("hello-agent@1.0.0"))],
    );
    let wheels = wheels.to_str().expect("UTF-8");
    let variables = [
        ("PIP_NO_INDEX", "1"),
        ("PIP_FIND_LINKS", wheels),
        ("UV_NO_INDEX", "1"),
        ("UV_FIND_LINKS", wheels),
    ];
    let added = agent(&gateway, &["add", "hello", "--registry", &file], &variables);
    assert!(added.ok, "{}", added.text);
    assert_eq!(runs(&gateway, "hello").await, "hello from wheel");
    assert!(agent(&gateway, &["remove", "hello"], &[]).ok);

    let file = registry(
        &gateway,
        &[entry("hello", "2.0.0", &uvx("hello-agent==2.0.0"))],
    );
    let ran = agent(&gateway, &["add", "hello", "--registry", &file], &variables);
    assert!(!ran.ok && ran.text.contains("2.0.0"), "{}", ran.text);
    assert!(!is_installed(&gateway, "hello"));
}

#[tokio::test]
async fn archive_that_leaves_its_folder_is_rejected() {
    let gateway = gateway();
    packages::escaping_zip(&gateway.path("evil.zip"));
    let file = registry(&gateway, &[binary_entry("1.0.0", "evil.zip", None)]);
    let ran = agent(&gateway, &["add", "hello", "--registry", &file], &[]);
    assert!(
        !ran.ok && ran.text.contains("outside of its folder"),
        "{}",
        ran.text
    );
    assert!(
        !Path::new(&gateway.path("data/agents/evil")).exists() && !is_installed(&gateway, "hello")
    );
}

#[tokio::test]
async fn root_tests_an_installed_agent_as_another_user() {
    if !geteuid().is_root() {
        eprintln!("this test needs root");
        return;
    }
    let gateway = gateway();
    binary_archive(&gateway.path("hello.tar.gz"), &executable());
    let file = registry(&gateway, &[binary_entry("1.0.0", "hello.tar.gz", None)]);
    let own_users = [("ACP_GATEWAY__ISOLATION__ALLOW_ROOT_AGENTS", "false")];
    let added = agent(&gateway, &["add", "hello", "--registry", &file], &own_users);
    assert!(added.ok, "{}", added.text);
    assert!(is_installed(&gateway, "hello"));
}

#[tokio::test]
async fn agent_commands_print_one_json_document() {
    let gateway = gateway();
    let archive = binary_archive(&gateway.path("hello.tar.gz"), &executable());
    let hash = sha256(&archive);
    let file = registry(&gateway, &[binary_entry("1.0.0", "hello.tar.gz", None)]);
    let from = ["--registry", &file, "--json"];
    let run = |arguments: &[&str]| {
        let ran = agent(&gateway, arguments, &[]);
        assert!(ran.ok, "{}", ran.text);
        ran.document
    };
    let found = run(&[&["search", "hello"], &from[..]].concat());
    let entry = json!({
        "id": "hello", "name": "Hello", "version": "1.0.0", "description": "Says hello", "kinds": ["binary"],
    });
    assert_eq!(found, json!({ "agents": [entry] }));
    assert_eq!(run(&["list", "--json"]), json!({ "agents": [] }));

    let added = run(&[&["add", "hello"], &from[..]].concat());
    let folder = gateway.path("data/agents/hello/1.0.0");
    let expected = |version: &str, previous: Value, added: &Value| {
        json!({
            "result": "installed", "id": "hello", "version": version, "kind": "binary", "sha256": hash, "name": "hello",
            "installedAt": added["installedAt"], "folder": folder.with_file_name(version), "agent": "hello 1.0.0",
            "signIn": [], "keyVariables": [], "configFile": gateway.path("config.toml"), "previousVersion": previous,
        })
    };
    assert_eq!(added, expected("1.0.0", Value::Null, &added));
    let listed = run(&["list", "--json"]);
    let agents = listed["agents"].as_array().expect("agents");
    assert_eq!(agents.len(), 1, "{listed}");
    assert_eq!(agents[0]["folder"], added["folder"]);
    assert_eq!(agents[0]["installedAt"], added["installedAt"]);

    let same = run(&[&["update", "hello"], &from[..]].concat());
    let unchanged = json!({ "result": "unchanged", "id": "hello", "version": "1.0.0" });
    assert_eq!(same, unchanged);
    registry(&gateway, &[binary_entry("1.1.0", "hello.tar.gz", None)]);
    let updated = run(&[&["update", "hello"], &from[..]].concat());
    assert_eq!(updated, expected("1.1.0", json!("1.0.0"), &updated));
    let removed = run(&["remove", "hello", "--json"]);
    let versions: Vec<&Value> = removed["removed"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|agent| &agent["version"])
        .collect();
    assert_eq!(versions, ["1.0.0", "1.1.0"]);
    assert_eq!(removed["removed"][0]["entryRemoved"], true, "{removed}");
    let failed = agent(&gateway, &["remove", "hello", "--json"], &[]);
    assert!(!failed.ok && failed.document.is_null(), "{}", failed.text);
}

/// Answers one request with this file. Returns its URL.
fn serve_once(file: &Path) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let content = fs::read(file).expect("a file");
    let serve = move || {
        let (mut stream, _) = listener.accept().expect("a request");
        let mut request = [0; 4096];
        let read = stream.read(&mut request).expect("a request");
        assert!(request[..read].starts_with(b"GET /hello.tar.gz"));
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
            content.len()
        );
        stream.write_all(head.as_bytes()).expect("the client reads");
        stream.write_all(&content).expect("the client reads");
    };
    std::thread::Builder::new().spawn(serve).expect("a thread");
    format!("http://{address}/hello.tar.gz?token=1")
}

#[tokio::test]
async fn installation_shows_its_steps_on_a_terminal_and_as_lines() {
    let gateway = gateway();
    let archive = binary_archive(&gateway.path("hello.tar.gz"), &executable());
    let register = || {
        let entry = binary_entry("1.0.0", &serve_once(&archive), None);
        registry(&gateway, &[entry])
    };
    let steps = [
        "reading the registry",
        "downloading hello.tar.gz",
        "unpacking",
        "starting the agent",
    ];
    let arguments = ["add", "hello", "--registry", &register()];
    let added = agent_command(&gateway, &arguments)
        .output()
        .expect("it runs");
    let lines = String::from_utf8(added.stderr).expect("UTF-8");
    assert_eq!(lines, steps.join("\n") + "\n");
    assert!(agent(&gateway, &["remove", "hello"], &[]).ok);

    let (ours, theirs) = terminal();
    let mut add = agent_command(&gateway, &["add", "hello", "--registry", &register()]);
    add.stderr(Stdio::from(theirs));
    let added = add.output().expect("it runs");
    assert!(added.status.success(), "{added:?}");
    // The last descriptor of the other side.
    drop(add);
    let mut shown = Vec::new();
    // The read fails after all bytes, because the other side is closed.
    let _ = fs::File::from(ours).read_to_end(&mut shown);
    let shown = String::from_utf8(shown).expect("UTF-8");
    let mut rest = &*shown;
    for step in steps {
        let (_, after) = rest
            .split_once(&format!("\r{step}"))
            .unwrap_or_else(|| panic!("{step}: {shown:?}"));
        rest = after;
    }
    assert!(
        shown.contains("\rdownloading hello.tar.gz: 0 KiB") && shown.contains(" KiB of "),
        "{shown:?}"
    );
    assert!(
        shown.ends_with('\n') && !shown.contains("token"),
        "{shown:?}"
    );
    // Each line fits into 80 columns, so that the next one replaces it.
    let longest = shown.split(['\r', '\n']).map(str::len).max();
    assert_eq!(longest, Some(79), "{shown:?}");
}

#[test]
fn without_a_configuration_file_the_entry_is_written_into_that_of_the_user() {
    // The tests do not read a file of the machine.
    if Path::new("/etc/acp-gateway/acp-gateway.toml").exists() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let home = folder.path().join("home");
    fs::create_dir(&home).expect("the folder is ours");
    fs::write(folder.path().join("hello"), executable()).expect("the folder is ours");
    let target = format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH);
    let binary_of_target = json!({ "binary": { target: { "archive": "hello", "cmd": "hello" } } });
    let text =
        json!({ "version": "1.0.0", "agents": [entry("hello", "1.0.0", &binary_of_target)] });
    fs::write(folder.path().join("registry.json"), text.to_string()).expect("the folder is ours");
    let run = |arguments: &[&str]| {
        let output = command(binary().to_str().expect("UTF-8"))
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", &home)
            // Tests may run as root.
            .env("ACP_GATEWAY__ISOLATION__ALLOW_ROOT_AGENTS", "true")
            .current_dir(folder.path())
            .arg("agent")
            .args(arguments)
            .output();
        let output = output.expect("it runs");
        assert!(output.status.success(), "{output:?}");
    };
    run(&["add", "hello", "--registry", "registry.json"]);
    let file = home.join(".config/acp-gateway/acp-gateway.toml");
    let text = fs::read_to_string(&file).expect("a file");
    assert!(text.contains("[agents.hello]"), "{text}");
    run(&["remove", "hello"]);
    let text = fs::read_to_string(&file).expect("a file");
    assert!(!text.contains("hello"), "{text}");
}
