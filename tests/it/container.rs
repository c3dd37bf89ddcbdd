//! Checks the container files without an engine: the names in them exist, and compose sets the documented limits.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::real_agents::file;
use crate::support::gateway::command;
use crate::support::places::project;

fn read(name: &str) -> String {
    let path = project().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The service `gateway` of compose files, merged as Docker Compose does: later values replace earlier ones, members of
/// mappings are merged, and lists are appended.
pub(crate) fn compose(files: &[&str]) -> Value {
    const TO_JSON: &str =
        "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin.buffer.read())))";
    let parsed = files.iter().map(|name| {
        let input = std::fs::File::open(project().join(name));
        let mut python = command(&file(".venv/bin/python"));
        let output = python
            .args(["-c", TO_JSON])
            .stdin(input.expect("the file is committed"))
            .output();
        let output = output.expect("the environment has PyYAML");
        assert!(
            output.status.success(),
            "{name}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        document["services"]["gateway"].clone()
    });
    parsed.reduce(merged).expect("there are files")
}

fn merged(earlier: Value, later: Value) -> Value {
    match (earlier, later) {
        (Value::Object(mut members), Value::Object(more)) => {
            for (name, value) in more {
                let earlier = members.remove(&name).unwrap_or_default();
                members.insert(name, merged(earlier, value));
            }
            Value::Object(members)
        }
        (Value::Array(mut items), Value::Array(more)) => {
            for item in more {
                if !items.contains(&item) {
                    items.push(item);
                }
            }
            Value::Array(items)
        }
        (_, later) => later,
    }
}

/// Instructions of a Dockerfile, with continued lines joined and without comments.
fn instructions(text: &str) -> Vec<String> {
    let code: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .collect();
    code.join("\n")
        .replace("\\\n", " ")
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn dockerfile_copies_only_existing_paths() {
    let ignored = read(".dockerignore");
    let mut stages = BTreeSet::new();
    let mut current = String::new();
    let mut copied = 0;
    for line in instructions(&read("Dockerfile")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[0] {
            "FROM" => {
                assert_eq!(words[2], "AS", "{line}: a stage without a name");
                current = words[3].to_owned();
                stages.insert(current.clone());
            }
            // The context of this stage is another folder.
            "COPY" if current == "prebuilt" => assert_eq!(line, "COPY acp-gateway /acp-gateway"),
            "COPY" => {
                copied += 1;
                let from = words.iter().find_map(|word| word.strip_prefix("--from="));
                if let Some(stage) = from {
                    assert!(
                        stages.contains(stage),
                        "{line}: no earlier stage of that name"
                    );
                    continue;
                }
                for source in &words[1..words.len() - 1] {
                    assert!(project().join(source).exists(), "{line}: {source}");
                    assert!(
                        !ignored.lines().any(|pattern| pattern == *source),
                        "{source} is in .dockerignore"
                    );
                }
            }
            _ => {}
        }
    }
    assert_eq!(copied, 4);
    let named = [
        "source",
        "prebuilt",
        "binary",
        "files",
        "gateway",
        "gateway-node",
    ];
    assert_eq!(stages, BTreeSet::from(named.map(str::to_owned)));
}

#[test]
fn both_images_run_unprivileged_under_an_init() {
    let lines = instructions(&read("Dockerfile"));
    for needed in [
        "USER 10001:10001",
        "STOPSIGNAL SIGTERM",
        "VOLUME [\"/data\", \"/workspaces\"]",
        "ENTRYPOINT [\"tini\", \"-s\", \"--\", \"acp-gateway\"]",
    ] {
        assert_eq!(
            lines.iter().filter(|line| *line == needed).count(),
            2,
            "{needed}"
        );
    }
    let health = lines
        .iter()
        .filter(|line| line.ends_with("CMD [\"acp-gateway\", \"healthcheck\"]"));
    assert_eq!(health.count(), 2);
    let toolchain: toml::Table = read("rust-toolchain.toml").parse().expect("it is TOML");
    let version = toolchain["toolchain"]["channel"]
        .as_str()
        .expect("the channel is named");
    let image = format!("ARG RUST_IMAGE=rust:{version}-slim-bookworm");
    assert!(
        lines.contains(&image),
        "the image builds with another toolchain than {version}"
    );
}

#[test]
fn every_base_image_is_an_argument() {
    let lines = instructions(&read("Dockerfile"));
    let bases: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("FROM "))
        .collect();
    assert_eq!(bases.len(), 6);
    for base in bases {
        assert!(
            base.starts_with("${") || base.starts_with("scratch "),
            "{base}: a digest cannot replace the tag of this image"
        );
    }
}

/// Agents are programs of the same user: they could read the environment of the init, and of the gateway and its
/// health check until these have closed themselves.
#[test]
fn the_programs_with_the_containers_environment_can_be_run_and_not_read() {
    let dockerfile = read("Dockerfile");
    for program in [
        "install -D -m 0711 /usr/bin/tini-static /files/usr/local/bin/tini",
        "install -m 0711 /acp-gateway /files/usr/local/bin/acp-gateway",
    ] {
        assert!(dockerfile.contains(program), "{program}");
    }
    let lines = instructions(&dockerfile);
    for copied in [
        "COPY --from=files /files /",
        "COPY --from=files /files/usr/local/bin /usr/local/bin",
    ] {
        assert!(lines.iter().any(|line| line == copied), "{copied}");
    }
}

#[test]
fn admin_key_file_is_rejected_where_agents_or_commits_can_read_it() {
    let compose = read("compose.yaml");
    let given: Vec<&str> = compose
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("ACP_GATEWAY_ADMIN_KEY_"))
        .collect();
    assert_eq!(given.len(), 1, "{given:?}");
    assert!(
        given[0].starts_with("ACP_GATEWAY_ADMIN_KEY_HASH: "),
        "{given:?}"
    );
    for file in [".gitignore", ".dockerignore"] {
        let ignored = read(file);
        for secret in ["admin.key", ".env", "gateway.toml"] {
            let found = ignored
                .lines()
                .any(|line| line.trim_start_matches('/') == secret);
            assert!(found, "{file} does not name {secret}");
        }
    }
}

#[test]
fn compose_grants_minimal_privileges() {
    let text = read("compose.yaml");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    for needed in [
        "read_only: true",
        "cap_drop:",
        "- ALL",
        "- no-new-privileges:true",
        "pids_limit: 1024",
        "mem_limit: 4g",
        "stop_grace_period: 45s",
        "max-size: 10m",
    ] {
        assert!(lines.contains(&needed), "compose.yaml lost `{needed}`");
    }
    let published = lines
        .iter()
        .filter(|line| line.ends_with(":8080\""))
        .collect::<Vec<_>>();
    assert_eq!(
        published,
        [&"- \"127.0.0.1:${ACP_GATEWAY_PORT:-8080}:8080\""],
        "it is published on loopback only"
    );
    assert!(
        lines.iter().any(|line| line.starts_with("- /tmp:exec,")),
        "agents run programs in /tmp"
    );
}

#[test]
fn isolation_variant_of_compose_removes_only_the_filters_of_the_engine() {
    let usual = compose(&["compose.yaml"]);
    let variant = compose(&["compose.yaml", "compose.isolation.yaml"]);
    assert_eq!(usual["security_opt"], json!(["no-new-privileges:true"]));
    assert_eq!(
        variant["security_opt"],
        json!([
            "no-new-privileges:true",
            "seccomp=unconfined",
            "apparmor=unconfined",
            "systempaths=unconfined"
        ])
    );
    assert_eq!(
        variant["environment"]["ACP_GATEWAY__ISOLATION__REQUIRED"],
        "true"
    );
    for (name, expected) in [
        ("cap_drop", json!(["ALL"])),
        ("cap_add", Value::Null),
        ("privileged", Value::Null),
        ("user", Value::Null),
        ("pid", Value::Null),
        ("read_only", json!(true)),
        ("tmpfs", json!(["/tmp:exec,nosuid,nodev,mode=1777,size=1g"])),
        ("pids_limit", json!(1024)),
        ("mem_limit", json!("4g")),
    ] {
        assert_eq!(variant[name], expected, "{name}");
    }
    let changed = ["security_opt", "environment"];
    for (name, value) in usual.as_object().expect("an object") {
        assert!(
            changed.contains(&name.as_str()) || variant[name] == *value,
            "{name}"
        );
    }
    let members = |service: &Value| service.as_object().map(serde_json::Map::len);
    assert_eq!(members(&variant), members(&usual));
}
