//! The sample file and the reference of all keys, generated from the table of keys.

use std::fmt::Write;
use std::path::PathBuf;

use super::agent::{Agent, Launch};
use super::key::DescribedDefault;
use super::{Config, DataDir, agent_keys, keys};

const SAMPLE_HEAD: &str = "\
# A sample configuration of acp-gateway: every key with its default. Remove the # before a key to change it.
#
# Pass the file with --config FILE or ACP_GATEWAY_CONFIG. Variables such as ACP_GATEWAY__SERVER__MAX_CONNECTIONS
# override keys of the file, and flags override variables. Sizes are numbers of bytes or texts such as \"16MiB\".
";

const AGENT_HEAD: &str = "
# Agents: one table for each. Without a table, the gateway offers the demo agent and known agents on PATH.
#
# [agents.claude]
# # A name on PATH or an absolute path. The built-in agent has `builtin = \"demo\"` instead.
# command = \"claude-agent-acp\"
# args = []
";

const MCP_TAIL: &str = "
# MCP servers that clients may select by name: one table for each. A server has a URL (`type` is \"http\" or \"sse\") or a command.
#
# [mcp.docs]
# url = \"https://mcp.example/docs\"
# type = \"http\"
# headers = {}
#
# [mcp.files]
# command = \"mcp-files\"
# args = []
# env = {}
";

/// Returns the sample file. Lines that begin with `#` and a key are settings; other comments begin with `# `.
pub fn sample() -> String {
    let config = default_config();
    let mut text = SAMPLE_HEAD.to_owned();
    for (section, description) in keys::SECTIONS {
        write_line(&mut text, &format!("\n# {description}\n[{section}]"));
        for key in keys::of_section(section) {
            let setting = match &key.default {
                None => format!("#{} = {}", key.name, (key.show)(&config)),
                Some(DescribedDefault { text, example }) => {
                    format!("# Default: {text}.\n# {} = {example}", key.name)
                }
            };
            write_line(&mut text, &format!("# {}\n{setting}", key.comment));
        }
    }
    text.push_str(AGENT_HEAD);
    let agent = Agent::new(Launch::Demo);
    for key in agent_keys::KEYS {
        write_line(&mut text, &format!("# # {}\n# {} = {}", key.comment, key.name, (key.show)(&agent)));
    }
    text.push_str(MCP_TAIL);
    text
}

/// Returns the tables of the configuration reference in Markdown, without agents and MCP servers.
pub fn reference() -> String {
    let config = default_config();
    let mut text = String::new();
    for (section, description) in keys::SECTIONS {
        write_line(
            &mut text,
            &format!("### `[{section}]`\n\n{description}\n\n| key | default | meaning |\n|---|---|---|"),
        );
        for key in keys::of_section(section) {
            let default = match &key.default {
                None => format!("`{}`", (key.show)(&config)),
                Some(described) => described.text.to_owned(),
            };
            write_line(&mut text, &format!("| `{}` | {default} | {} |", key.name, key.comment));
        }
        text.push('\n');
    }
    text
}

fn default_config() -> Config {
    Config::with_defaults(DataDir::new(PathBuf::new()))
}

fn write_line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("writing to a string does not fail");
}
