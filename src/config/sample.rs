//! The sample file and the reference of all keys, generated from the table of keys.

use std::fmt::Write;

use super::agent::{Agent, Launch};
use super::key::{DescribedDefault, Key};
use super::{Config, agent_keys, keys};

/// Returns the sample file. Lines that begin with `#` and a key are settings; other comments begin with `# `.
pub fn sample() -> String {
    let config = Config::default();
    let mut sections = String::new();
    for (section, description) in keys::SECTIONS {
        write_line(&mut sections, &format!("\n# {description}\n[{section}]"));
        for key in keys::of_section(section) {
            let setting = match &key.default {
                None => format!("#{} = {}", key.name, (key.show)(&config)),
                Some(DescribedDefault { text, example }) => {
                    format!("# Default: {text}.\n# {} = {example}", key.name)
                }
            };
            write_line(&mut sections, &format!("# {}\n{setting}", key.comment));
        }
    }
    let agent = Agent::new(Launch::Demo);
    let line = |key: &Key<Agent>| {
        format!(
            "# # {}\n# {} = {}\n",
            key.comment,
            key.name,
            (key.show)(&agent)
        )
    };
    let agent_keys: String = agent_keys::KEYS.iter().map(line).collect();
    include_str!("sample.template")
        .replace("{sections}", &sections)
        .replace("{agent_keys}", &agent_keys)
}

/// Returns the tables of the configuration reference in Markdown, without agents and MCP servers.
pub fn reference() -> String {
    let config = Config::default();
    let mut text = String::new();
    for (section, description) in keys::SECTIONS {
        write_line(
            &mut text,
            &format!(
                "### `[{section}]`\n\n{description}\n\n| key | default | meaning |\n|---|---|---|"
            ),
        );
        for key in keys::of_section(section) {
            let default = match &key.default {
                None => format!("`{}`", (key.show)(&config)),
                Some(described) => described.text.to_owned(),
            };
            write_line(
                &mut text,
                &format!("| `{}` | {default} | {} |", key.name, key.comment),
            );
        }
        text.push('\n');
    }
    text
}

fn write_line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("writing to a string does not fail");
}
