//! The table of the documentation. `UPDATE=1 cargo test --test it isolation::attacks` writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::attacks::Outcomes;
use super::ground::{Machine, User, has_queues};
use crate::support::places::project;

pub(super) const COLUMNS: [(&str, Machine); 6] = [
    ("off", Machine::Any),
    ("strict", Machine::Any),
    ("private", Machine::Namespaces),
    ("workspace", Machine::Namespaces),
    ("private", Machine::LandlockOnly),
    ("workspace", Machine::LandlockOnly),
];

const FILE: &str = "docs/internals/isolation.md";
const BEGIN: &str = "<!-- generated: begin -->\n";
const END: &str = "<!-- generated: end -->\n";

/// Actions that do harm without isolation only if the gateway has control groups.
pub(super) const NEED_GROUPS: [&str; 4] = [
    "change a device or control group (/sys)",
    "leave the own control group (cgroup.procs of the gateway)",
    "kill the gateway through its control group (cgroup.kill)",
    "raise the limits of the own control group",
];

/// Actions that do harm without isolation only if all message queues are mounted.
const NEED_QUEUES: [&str; 2] = [
    "read a message of another process (/dev/mqueue)",
    "delete a message queue of another process (/dev/mqueue)",
];

const ROOT: &str = "Agents of root";
const RUN_AS: &str = "Agents of a gateway of root with `run_as`";
const UNPRIVILEGED: &str = "Agents of an unprivileged user";

type Column = ((User, &'static str, Machine), Outcomes);

/// Compares the outcomes with the table. A run without root has only the columns of the unprivileged user, and one of root
/// whose programs other users cannot reach has only those of root.
#[expect(clippy::disallowed_methods, reason = "the flag is for developers")]
pub(super) fn compare(columns: &[Column], has_groups: bool) {
    let path = project().join(FILE);
    let text = std::fs::read_to_string(&path).expect("the file is committed");
    let (head, rest) = text.split_once(BEGIN).expect("the begin of the table");
    let (committed, tail) = rest.split_once(END).expect("the end of the table");
    let has = |wanted| columns.iter().any(|((user, ..), _)| *user == wanted);
    let has_all = has(User::Root) && has(User::Unprivileged);
    let generated = tables(columns);
    if has_all && has_groups && std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, format!("{head}{BEGIN}{generated}{END}{tail}"))
            .expect("the file is ours");
        return;
    }
    let has_queues = has_queues();
    let names = |names: &[&str], line: &str| names.iter().any(|name| line.contains(name));
    let is_shown = |line: &&str| {
        (has_groups || !names(&NEED_GROUPS, line)) && (has_queues || !names(&NEED_QUEUES, line))
    };
    let shown = |text: &str| text.lines().filter(is_shown).collect::<Vec<_>>().join("\n");
    let committed = shown(committed);
    let generated = shown(&generated);
    let matches = if has_all {
        committed == generated
    } else {
        committed.contains(&generated)
    };
    assert!(
        matches,
        "{FILE} is out of date: UPDATE=1 cargo test --test it isolation::attacks\n{generated}"
    );
}

fn title(user: User) -> &'static str {
    match user {
        User::Root => ROOT,
        User::RunAs(_) => RUN_AS,
        User::Unprivileged => UNPRIVILEGED,
    }
}

fn tables(columns: &[Column]) -> String {
    let mut text = String::new();
    for title in [ROOT, RUN_AS, UNPRIVILEGED] {
        let own: Vec<&Column> = columns
            .iter()
            .filter(|((owner, ..), _)| self::title(*owner) == title)
            .collect();
        if own.is_empty() {
            continue;
        }
        writeln!(text, "\n## {title}").expect("a string");
        let mut groups: BTreeMap<Vec<bool>, Vec<&String>> = BTreeMap::new();
        let actions: BTreeSet<&String> = own
            .iter()
            .flat_map(|(_, outcomes)| outcomes.keys())
            .collect();
        for action in actions {
            let allowed = own
                .iter()
                .map(|(_, outcomes)| outcomes[action] == "allowed");
            groups.entry(allowed.collect()).or_default().push(action);
        }
        // The actions that most levels allow come first.
        for (allowed, actions) in groups.into_iter().rev() {
            let names: Vec<String> = own
                .iter()
                .zip(&allowed)
                .filter(|(_, allowed)| **allowed)
                .map(|(column, _)| name(column))
                .collect();
            let names = match &names[..] {
                [] => "no level".to_owned(),
                _ => names.join("; "),
            };
            writeln!(text, "\nAllowed at {names}:\n").expect("a string");
            for action in actions {
                writeln!(text, "- {action}").expect("a string");
            }
        }
    }
    text
}

fn name(((_, level, machine), _): &Column) -> String {
    let mechanism = match machine {
        Machine::Any | Machine::Bare => "",
        Machine::Namespaces => " with namespaces",
        Machine::LandlockOnly => " with Landlock only",
        Machine::NamespacesOnly => " with namespaces only",
    };
    format!("`{level}`{mechanism}")
}
