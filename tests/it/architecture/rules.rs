//! The table of layers, and the imports that violate it.

use std::path::Path;

use super::tokens::{Kind, Token, tokens};

/// Each module with the modules that it may import, lowest layer first. All modules above `telemetry` may import it.
pub(crate) const LAYERS: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("shutdown", &[]),
    ("telemetry", &["types"]),
    ("outgoing", &["types"]),
    ("config", &["types"]),
    ("jsonrpc", &["types"]),
    ("api", &["types"]),
    ("event", &["api", "types"]),
    ("acp", &["jsonrpc", "types"]),
    ("store", &["event", "types", "shutdown"]),
    ("process", &["types", "shutdown"]),
    (
        "translate",
        &["process", "acp", "jsonrpc", "types", "shutdown"],
    ),
    ("eventlog", &["store", "event", "types", "shutdown"]),
    (
        "audit",
        &["eventlog", "store", "event", "types", "shutdown"],
    ),
    ("transcript", &["acp", "event", "api", "types"]),
    (
        "projection",
        &["transcript", "acp", "event", "api", "types"],
    ),
    ("fleet", &["types", "shutdown"]),
    ("cca", &["fleet", "jsonrpc", "types", "shutdown"]),
    (
        "registry",
        &["process", "outgoing", "acp", "jsonrpc", "types", "shutdown"],
    ),
    (
        "agent",
        &[
            "fleet", "audit", "event", "process", "outgoing", "acp", "jsonrpc", "types", "shutdown",
        ],
    ),
    ("pool", &["agent", "acp", "types", "shutdown"]),
    (
        "webhooks",
        &[
            "eventlog", "store", "event", "outgoing", "types", "shutdown",
        ],
    ),
    ("workspace", &["process", "acp", "types", "shutdown"]),
    (
        "session",
        &[
            "pool",
            "fleet",
            "agent",
            "workspace",
            "transcript",
            "audit",
            "eventlog",
            "store",
            "acp",
            "jsonrpc",
            "event",
            "api",
            "types",
            "shutdown",
        ],
    ),
    (
        "conversation",
        &["session", "eventlog", "store", "types", "shutdown"],
    ),
    (
        "task",
        &[
            "session", "webhooks", "eventlog", "store", "event", "api", "types", "shutdown",
        ],
    ),
    (
        "broadcast",
        &[
            "session", "pool", "cca", "fleet", "agent", "audit", "event", "acp", "api", "types",
            "shutdown",
        ],
    ),
    ("auth", &["audit", "event", "store", "types", "shutdown"]),
    (
        "control",
        &["auth", "process", "store", "types", "shutdown"],
    ),
    (
        "stream",
        &[
            "auth", "session", "eventlog", "event", "api", "types", "shutdown",
        ],
    ),
    ("server", &["stream", "auth", "types", "shutdown"]),
    (
        "surface",
        &[
            "server",
            "stream",
            "auth",
            "conversation",
            "task",
            "broadcast",
            "session",
            "pool",
            "cca",
            "fleet",
            "registry",
            "agent",
            "webhooks",
            "workspace",
            "projection",
            "transcript",
            "audit",
            "eventlog",
            "acp",
            "event",
            "api",
            "jsonrpc",
            "types",
            "shutdown",
        ],
    ),
    (
        "attach",
        &[
            "translate",
            "outgoing",
            "acp",
            "jsonrpc",
            "types",
            "shutdown",
        ],
    ),
    (
        "connect",
        &[
            "outgoing",
            "fleet",
            "workspace",
            "process",
            "acp",
            "jsonrpc",
            "types",
            "shutdown",
        ],
    ),
    ("demo_agent", &["acp", "jsonrpc", "types", "shutdown"]),
    (
        "app",
        &[
            "demo_agent",
            "surface",
            "server",
            "stream",
            "control",
            "auth",
            "task",
            "broadcast",
            "session",
            "pool",
            "cca",
            "fleet",
            "registry",
            "agent",
            "webhooks",
            "workspace",
            "transcript",
            "audit",
            "eventlog",
            "event",
            "process",
            "store",
            "acp",
            "api",
            "jsonrpc",
            "config",
            "types",
            "shutdown",
        ],
    ),
    (
        "cli",
        &[
            "app",
            "demo_agent",
            "translate",
            "connect",
            "attach",
            "outgoing",
            "surface",
            "server",
            "stream",
            "control",
            "auth",
            "task",
            "broadcast",
            "session",
            "pool",
            "cca",
            "fleet",
            "registry",
            "agent",
            "webhooks",
            "workspace",
            "transcript",
            "audit",
            "eventlog",
            "event",
            "process",
            "store",
            "acp",
            "api",
            "jsonrpc",
            "config",
            "types",
            "shutdown",
        ],
    ),
    ("main", &["cli"]),
];

/// Crates that only some modules may use.
const WEB_CRATES: [&str; 3] = ["axum", "utoipa_axum", "utoipa_swagger_ui"];
const WEB_MODULES: [&str; 3] = ["server", "surface", "app"];
/// Modules that must not know ACP.
const NO_ACP: [&str; 5] = ["types", "store", "eventlog", "jsonrpc", "process"];

/// A line and its violation.
pub(crate) type Violation = (usize, String);

/// The violations in one file. `file` is relative to the repository.
pub(crate) fn violations(file: &Path, source: &str) -> Vec<Violation> {
    let mut module: Vec<String> = file
        .with_extension("")
        .iter()
        .skip(1)
        .map(|part| part.to_string_lossy().into_owned())
        .filter(|part| part != "mod" && part != "lib")
        .collect();
    let owner = module.first().cloned().unwrap_or_else(|| "lib".to_owned());
    if owner == "main" {
        // `main.rs` is the root of a separate crate.
        module.clear();
    }
    let mut walk = Walk {
        tokens: tokens(source),
        module,
        owner,
        inline: Vec::new(),
        found: Vec::new(),
    };
    walk.file();
    walk.found
}

struct Walk {
    tokens: Vec<Token>,
    /// The path of the current module, including inline modules.
    module: Vec<String>,
    /// The first part of the path: the row of the table.
    owner: String,
    /// The depth of braces at which each inline module begins.
    inline: Vec<usize>,
    found: Vec<Violation>,
}

impl Walk {
    fn kind(&self, at: usize) -> Option<&Kind> {
        self.tokens.get(at).map(|token| &token.kind)
    }

    fn word(&self, at: usize) -> &str {
        match self.kind(at) {
            Some(Kind::Word(word)) => word,
            _ => "",
        }
    }

    fn is(&self, at: usize, punct: char) -> bool {
        self.kind(at) == Some(&Kind::Punct(punct))
    }

    fn is_sep(&self, at: usize) -> bool {
        self.kind(at) == Some(&Kind::PathSep)
    }

    fn report(&mut self, at: usize, what: String) {
        let line = self.tokens.get(at).map_or(0, |token| token.line);
        self.found.push((line, what));
    }

    fn file(&mut self) {
        let mut depth = 0_usize;
        let mut at = 0;
        while at < self.tokens.len() {
            if self.is(at, '{') {
                depth += 1;
                if at >= 2 && self.word(at - 2) == "mod" {
                    self.module.push(self.word(at - 1).to_owned());
                    self.inline.push(depth);
                }
            } else if self.is(at, '}') {
                if self.inline.last() == Some(&depth) {
                    self.inline.pop();
                    self.module.pop();
                }
                depth = depth.saturating_sub(1);
            }
            at = self.item(at);
        }
    }

    /// Checks the item at `at`. Returns the position after it.
    fn item(&mut self, at: usize) -> usize {
        if let Some(Kind::Text(text)) = self.kind(at) {
            // `#[serde(with = "crate::x")]` is an import too.
            if text.starts_with("crate::") {
                let target = tokens(text).into_iter().nth(2);
                if let Some(Token {
                    kind: Kind::Word(target),
                    ..
                }) = target
                {
                    self.import(at, &target);
                }
            }
            return at + 1;
        }
        if self.word(at).is_empty() || (at > 0 && self.is_sep(at - 1)) {
            return at + 1;
        }
        self.crates(at);
        let is_path = matches!(self.word(at), "crate" | "super" | "self" | "acp_gateway");
        if is_path && (self.is_sep(at + 1) || self.word(at + 1) == "as") {
            let base = self.module.clone();
            return self.tree(at, base).max(at + 1);
        }
        if self.owner == "lib" && self.word(at) == "use" {
            self.report(at, "lib.rs lists modules and re-exports nothing".to_owned());
        }
        at + 1
    }

    /// Checks crates and calls that only some modules may use.
    fn crates(&mut self, at: usize) {
        let word = self.word(at).to_owned();
        let leads = self.is_sep(at + 1) || (at > 0 && self.word(at - 1) == "use");
        if leads
            && WEB_CRATES.contains(&word.as_str())
            && !WEB_MODULES.contains(&self.owner.as_str())
        {
            self.report(
                at,
                format!("{word} is known only in server, surface and app"),
            );
        }
        if leads && word == "agent_client_protocol_schema" && NO_ACP.contains(&self.owner.as_str())
        {
            self.report(at, format!("{} knows no ACP", self.owner));
        }
        let mut last = at;
        while self.is_sep(last + 1) && !self.word(last + 2).is_empty() {
            if self.word(last) == "Command" && self.word(last + 2) == "new" {
                if self.owner != "process" && word != "clap" {
                    self.report(at, "children are started only in process".to_owned());
                }
                return;
            }
            last += 2;
        }
    }

    /// Walks a path or a tree of paths that starts in `base`. Returns the position after it.
    fn tree(&mut self, mut at: usize, mut base: Vec<String>) -> usize {
        loop {
            match self.word(at) {
                "crate" | "acp_gateway" => base.clear(),
                "super" => {
                    base.pop();
                }
                "self" => {}
                _ => break,
            }
            if !self.is_sep(at + 1) {
                if base.is_empty() && self.word(at + 1) == "as" {
                    self.report(at, "the crate's root may not be renamed".to_owned());
                }
                return at + 1;
            }
            at += 2;
        }
        if !base.is_empty() {
            // The path stays in its own row. A group may be in another row.
            base.push(self.word(at).to_owned());
            let group = if self.is(at, '{') { at } else { at + 2 };
            return if self.is(group, '{') {
                self.group(group, &base)
            } else {
                at + 1
            };
        }
        if self.is(at, '{') {
            return self.group(at, &base);
        }
        let target = if self.is(at, '*') {
            "*".to_owned()
        } else {
            self.word(at).to_owned()
        };
        self.import(at, &target);
        at + 1
    }

    /// Walks `{a, b::c, d}`. Every member starts in `base`.
    fn group(&mut self, open: usize, base: &[String]) -> usize {
        let base: Vec<String> = base
            .iter()
            .filter(|part| !part.is_empty())
            .cloned()
            .collect();
        let mut at = open + 1;
        let mut depth = 1;
        let mut member = true;
        while at < self.tokens.len() && depth > 0 {
            if member && depth == 1 && !self.is(at, '}') {
                at = self.tree(at, base.clone());
                member = false;
                continue;
            }
            depth = if self.is(at, '{') {
                depth + 1
            } else {
                depth - usize::from(self.is(at, '}'))
            };
            member = self.is(at, ',');
            at += 1;
        }
        at
    }

    fn import(&mut self, at: usize, target: &str) {
        let owner = self.owner.as_str();
        let row = LAYERS.iter().find(|(module, _)| *module == owner);
        let imports = row.map_or(&[][..], |(_, imports)| imports);
        let open = target == "telemetry" && !matches!(owner, "types" | "shutdown" | "lib" | "main");
        if target == owner || open || imports.contains(&target) {
            return;
        }
        let what = if LAYERS.iter().any(|(module, _)| *module == target) {
            format!("{owner} may not import {target}")
        } else {
            format!("`crate::{target}` is no module of the table")
        };
        self.report(at, what);
    }
}

#[cfg(test)]
fn judged(file: &str, source: &str) -> Vec<String> {
    violations(Path::new(file), source)
        .into_iter()
        .map(|(line, what)| format!("{line}: {what}"))
        .collect()
}

#[test]
fn listed_import_passes() {
    let source = "use crate::store::{Get, Put};\nuse crate::{types::Limits, shutdown};\nuse crate::telemetry::x;\n\
        use super::writer::{self, Tail};\nuse self::a::b;\npub(crate) fn f() -> crate::types::SessionId {\n\
        // crate::session\n let text = \"crate is a word\"; crate::eventlog::y() }\n\
        mod tests { use super::super::z; }";
    assert_eq!(
        judged("src/eventlog/reader.rs", source),
        Vec::<String>::new()
    );
    assert_eq!(
        judged("src/main.rs", "fn main() { acp_gateway::cli::main() }"),
        Vec::<String>::new()
    );
    assert_eq!(
        judged("src/lib.rs", "pub mod types;\npub mod store;"),
        Vec::<String>::new()
    );
}

#[test]
fn an_import_up_the_layers_is_found() {
    let up = "2: store may not import session";
    for source in [
        "\nuse crate::session::Handle;",
        "\nuse crate::{types::Limits, session};",
        "\nuse crate::{types::{Clock, Limits}, session::{a, b}};",
        "\nuse super::super::session::Handle;",
        "\nuse super::{Port, super::session};",
        "\nuse super::super::{types, session};",
        "\nfn f(x: crate::session::Handle) {}",
        "\nfn f() { let y = super::super::session::open(); }",
        "\nuse acp_gateway::session;",
        "\n#[serde(with = \"crate::session::x\")]",
        "mod tests { mod deep {\nuse super::super::super::super::session; } }",
        "\nmacro_rules! m { () => { $crate::session::x } }",
        "\npub use self::super::super::session;",
    ] {
        assert_eq!(judged("src/store/sqlite.rs", source), [up], "{source}");
    }
}

#[test]
fn super_resolves_by_the_depth_of_the_file() {
    let source = "use super::session::x;";
    assert_eq!(
        judged("src/store/mod.rs", source),
        ["1: store may not import session"]
    );
    assert_eq!(
        judged("src/shutdown.rs", source),
        ["1: shutdown may not import session"]
    );
    assert_eq!(judged("src/store/sqlite.rs", source), Vec::<String>::new());
}

#[test]
fn ways_around_the_table_are_found() {
    assert_eq!(
        judged("src/store/mod.rs", "use crate::*;"),
        ["1: `crate::*` is no module of the table"]
    );
    assert_eq!(
        judged("src/store/mod.rs", "use crate as c;"),
        ["1: the crate's root may not be renamed"]
    );
    assert_eq!(
        judged("src/store/mod.rs", "use super as c;"),
        ["1: the crate's root may not be renamed"]
    );
    assert_eq!(
        judged("src/new/mod.rs", "use crate::types::A;"),
        ["1: new may not import types"]
    );
    assert_eq!(
        judged("src/types/mod.rs", "use crate::telemetry;"),
        ["1: types may not import telemetry"]
    );
    assert_eq!(
        judged("src/lib.rs", "pub use types::A;"),
        ["1: lib.rs lists modules and re-exports nothing"]
    );
}

#[test]
fn crates_and_calls_have_their_places() {
    let axum = ["1: axum is known only in server, surface and app"];
    assert_eq!(judged("src/api/mod.rs", "use axum::Json;"), axum);
    assert_eq!(
        judged("src/session/mod.rs", "fn f(x: axum::Json<u8>) {}"),
        axum
    );
    assert_eq!(
        judged("src/server/mod.rs", "use axum::Json;"),
        Vec::<String>::new()
    );
    let child = ["1: children are started only in process"];
    assert_eq!(
        judged("src/agent/mod.rs", "fn f() { Command::new(x); }"),
        child
    );
    assert_eq!(
        judged(
            "src/agent/mod.rs",
            "fn f() { std::process::Command::new(x); }"
        ),
        child
    );
    assert_eq!(
        judged("src/process/spawn.rs", "fn f() { Command::new(x); }"),
        Vec::<String>::new()
    );
    assert_eq!(
        judged("src/cli/mod.rs", "fn f() { clap::Command::new(x); }"),
        Vec::<String>::new()
    );
    assert_eq!(
        judged("src/store/mod.rs", "use agent_client_protocol_schema::v1;"),
        ["1: store knows no ACP"]
    );
}
