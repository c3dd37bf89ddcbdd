//! The blocks that users paste from the documentation: each runs against a real gateway with the demo agent, and its
//! output is the documented one.
//!
//! `page` reads the blocks and their marks, `shell` runs them in order, `output` compares their output.

mod output;
mod page;
mod shell;

use std::path::{Path, PathBuf};

use self::output::{matches, normal};
use self::page::{Block, Mark, blocks};
use self::shell::{RunningGateway, Shell};
use crate::support::places::project;

fn root() -> &'static Path {
    project()
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Pages whose blocks users paste.
fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned(), "docs/operations.md".to_owned()];
    for folder in ["docs/guides", "docs/reference"] {
        let entries =
            std::fs::read_dir(root().join(folder)).expect("a folder of the documentation");
        let names = entries.map(|entry| {
            entry
                .expect("a page")
                .file_name()
                .into_string()
                .expect("UTF-8")
        });
        pages.extend(names.map(|name| format!("{folder}/{name}")));
    }
    pages.sort();
    pages
}

/// All pages of the documentation, and the pages in the root folder.
fn all_pages() -> Vec<String> {
    let mut pages = Vec::new();
    for folder in [
        "",
        "docs",
        "docs/adr",
        "docs/guides",
        "docs/internals",
        "docs/reference",
    ] {
        let entries =
            std::fs::read_dir(root().join(folder)).expect("a folder of the documentation");
        let files = entries.map(|entry| entry.expect("a file").path());
        let pages_here =
            files.filter(|file| file.extension().is_some_and(|extension| extension == "md"));
        let name = |file: PathBuf| {
            file.strip_prefix(root())
                .expect("below the root")
                .to_string_lossy()
                .into_owned()
        };
        pages.extend(pages_here.map(name));
    }
    assert!(pages.len() > 40, "{pages:?}");
    pages
}

/// Runs the blocks of a page in their order, in one folder and one shell.
fn run(page: &str) {
    let text = read(page);
    let blocks = blocks(&text);
    let mut shell = Shell::start();
    let mut gateway: Option<RunningGateway> = None;
    let mut run = 0;
    for (index, block) in blocks.iter().enumerate() {
        let location = format!("{page}:{}", block.line);
        match (&block.mark, &*block.language) {
            (Mark::File(name), _) => shell.write(name, block.text),
            (Mark::Serve(other), "sh") => {
                drop(gateway.take());
                let command = other.as_deref().unwrap_or(block.text);
                let served = RunningGateway::start(&shell, command, &location);
                compare(&served.printed, expected(&blocks, index), &shell, &location);
                gateway = Some(served);
            }
            (Mark::None | Mark::Before(_), "sh") => {
                if let Mark::Before(command) = &block.mark {
                    let printed = shell.run(command, gateway.as_ref(), &location);
                    assert_eq!(printed, "", "{location}: the command before the block");
                }
                let printed = shell.run(block.text, gateway.as_ref(), &location);
                compare(&printed, expected(&blocks, index), &shell, &location);
            }
            _ => continue,
        }
        run += 1;
    }
    assert!(run > 0, "{page} has no block that runs");
}

/// The `text` block behind a command; a command without one prints nothing.
fn expected<'a>(blocks: &'a [Block<'a>], index: usize) -> &'a str {
    blocks
        .get(index + 1)
        .filter(|next| next.language == "text")
        .map_or("", |next| next.text)
}

fn compare(printed: &str, expected: &str, shell: &Shell, location: &str) {
    let printed = normal(printed, shell.folder());
    let expected = normal(expected, shell.folder());
    assert!(
        matches(&printed, &expected),
        "{location} prints\n{printed}\n\nand not\n{expected}"
    );
}

#[test]
fn blocks_of_the_readme_print_their_output() {
    run("README.md");
}

#[test]
fn blocks_of_the_guide_first_session_print_their_output() {
    run("docs/guides/first-session.md");
}

#[test]
fn blocks_of_the_guide_web_app_on_another_origin_print_their_output() {
    run("docs/guides/web-app-on-another-origin.md");
}

#[test]
fn blocks_of_the_guide_curl_and_scripts_print_their_output() {
    run("docs/guides/curl-and-scripts.md");
}

#[test]
fn blocks_of_the_guide_adding_agents_print_their_output() {
    run("docs/guides/adding-agents.md");
}

#[test]
fn blocks_of_the_guide_kinds_of_agents_print_their_output() {
    run("docs/guides/kinds-of-agents.md");
}

#[test]
fn blocks_of_the_guide_agents_older_than_acp_print_their_output() {
    run("docs/guides/agents-older-than-acp.md");
}

#[test]
fn blocks_of_the_guide_fleet_print_their_output() {
    run("docs/guides/fleet.md");
}

#[test]
fn blocks_of_the_guide_fleet_programs_print_their_output() {
    run("docs/guides/fleet-programs.md");
}

#[test]
fn blocks_of_the_guide_installing_agents_print_their_output() {
    run("docs/guides/installing-agents.md");
}

#[test]
fn blocks_of_the_guide_tasks_print_their_output() {
    run("docs/guides/tasks.md");
}

#[test]
fn blocks_of_the_guide_chat_frontends_print_their_output() {
    run("docs/guides/chat-frontends.md");
}

#[test]
fn blocks_of_the_guide_broadcasts_print_their_output() {
    run("docs/guides/broadcasts.md");
}

#[test]
fn blocks_of_the_guide_webhooks_print_their_output() {
    run("docs/guides/webhooks.md");
}

#[test]
fn blocks_of_the_guide_remote_agents_print_their_output() {
    run("docs/guides/remote-agents.md");
}

#[test]
fn blocks_of_the_guide_sharing_with_a_colleague_print_their_output() {
    run("docs/guides/sharing-with-a-colleague.md");
}

#[test]
fn the_blocks_of_the_guide_editors_print_what_it_shows() {
    run("docs/guides/editors.md");
}

/// Blocks that need a Docker engine do not run. `container` compares the flags of the Dockerfile and of compose, and the
/// test below the names in the guide with both files.
#[test]
fn blocks_of_the_guide_docker_that_need_no_engine_print_their_output() {
    run("docs/guides/docker.md");
}

/// The configuration of the proxy itself does not run; the requests that a proxy would send do.
#[test]
fn blocks_of_the_guide_reverse_proxy_print_their_output() {
    run("docs/guides/reverse-proxy.md");
}

#[test]
fn blocks_of_the_command_line_reference_print_their_output() {
    run("docs/reference/command-line.md");
}

#[test]
fn blocks_of_operations_print_their_output() {
    run("docs/operations.md");
}

#[test]
fn blocks_of_the_audit_reference_print_their_output() {
    run("docs/reference/audit.md");
}

/// Every page with commands is run by a test above, and a block that is not run has a reason.
#[test]
fn every_block_runs_or_has_a_reason() {
    let source = read("tests/it/guides.rs");
    let mut wrong = Vec::new();
    for page in pages() {
        let text = read(&page);
        let run = source.contains(&format!("run(\"{page}\")"));
        for block in blocks(&text) {
            let location = format!("{page}:{}", block.line);
            match (&block.mark, &*block.language) {
                (Mark::NotRun(reason), _) if reason.len() < 10 => {
                    wrong.push(format!("{location}: no reason"));
                }
                (Mark::SameAs(file), _) if read(file).trim_end() != block.text.trim_end() => {
                    wrong.push(format!("{location} differs from {file}"));
                }
                (Mark::None | Mark::Serve(_) | Mark::Before(_), "sh" | "bash") if !run => {
                    wrong.push(format!("{location}: no test runs it"));
                }
                (Mark::None, "js" | "python" | "html" | "nginx" | "yaml" | "bash") => {
                    wrong.push(format!(
                        "{location}: a {} block without a mark",
                        block.language
                    ));
                }
                (Mark::None | Mark::File(_), "toml") => check(block.text, &location),
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The language decides whether the tests run a block, so a block without one could hide a command.
#[test]
fn every_block_has_a_language() {
    let mut wrong = Vec::new();
    for page in all_pages() {
        let text = read(&page);
        let without = blocks(&text)
            .into_iter()
            .filter(|block| block.language.is_empty());
        wrong.extend(without.map(|block| format!("{page}:{}", block.line)));
    }
    assert!(
        wrong.is_empty(),
        "blocks without a language:\n{}",
        wrong.join("\n")
    );
}

/// The gateway accepts the configuration of a `toml` block.
fn check(text: &str, location: &str) {
    use acp_gateway::config::{self, Environment, Flags};
    let folder = tempfile::tempdir().expect("a folder");
    let file: PathBuf = folder.path().join("gateway.toml");
    std::fs::write(&file, text).expect("the folder is ours");
    let named = text
        .split("from_env = \"")
        .skip(1)
        .filter_map(|rest| rest.split_once('"'));
    let variables = named
        .map(|(name, _)| (name, "value"))
        .chain([("ACP_GATEWAY_DATA", "/data")]);
    let flags = Flags {
        config: Some(file),
        ..Flags::default()
    };
    let loaded = config::load(&flags, &variables.collect::<Environment>(), &|_| false);
    loaded.unwrap_or_else(|error| panic!("{location}: {error}\n{text}"));
}

#[test]
fn docker_guide_matches_dockerfile_and_compose() {
    let guide = read("docs/guides/docker.md");
    let dockerfile = read("Dockerfile");
    let compose = read("compose.yaml");
    for stage in guide
        .split("--target ")
        .skip(1)
        .filter_map(|rest| rest.split_whitespace().next())
    {
        assert!(
            dockerfile.contains(&format!(" AS {stage}\n")),
            "the Dockerfile has no target {stage}"
        );
    }
    let service = |line: &str| line.trim_end_matches(':').trim() == "gateway";
    assert!(
        compose.lines().any(service),
        "compose has no service gateway"
    );
    for needed in [
        "10001",
        "127.0.0.1:${ACP_GATEWAY_PORT:-8080}:8080",
        "stop_grace_period: 45s",
    ] {
        assert!(
            dockerfile.contains(needed) || compose.contains(needed),
            "{needed}"
        );
        let named = needed.rsplit(": ").next().unwrap_or(needed);
        assert!(guide.contains(named), "the guide does not name {named}");
    }
    // The key of the guide is made as the head of compose.yaml describes.
    for command in [
        "openssl rand -hex 32 > admin.key",
        "ACP_GATEWAY_ADMIN_KEY_HASH=%s",
    ] {
        assert!(
            guide.contains(command) && compose.contains(command),
            "{command}"
        );
    }
}
