//! Checks of the source in `src/`: layers and import cycles between files. A failure names the file and the line.
//!
//! `ARCHITECTURE.md` shows the same table of layers. A test compares both.

mod cycles;
mod event_bytes;
mod imports;
mod rules;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use self::cycles::Graph;
use self::rules::{LAYERS, violations};
use crate::support::places::project;

fn root() -> &'static Path {
    project()
}

/// Every Rust file below `folder`, as paths relative to the repository.
fn rust_files(folder: &str) -> Vec<PathBuf> {
    files_below(folder, &["rs"])
}

/// Every file below `folder` with one of these extensions, as paths relative to the repository.
pub(crate) fn files_below(folder: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root().join(folder)];
    while let Some(next) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&next) else {
            continue;
        };
        for entry in entries {
            let path = entry
                .expect("a folder of the repository can be listed")
                .path();
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            // git ignores the output of `scripts/clients` and of the builds of the packages.
            let outputs = [
                "tests/clients/generated",
                "packages/client/dist",
                "packages/react/dist",
            ];
            let is_output =
                name == "node_modules" || outputs.iter().any(|output| path.ends_with(output));
            if path.is_dir() && !name.starts_with('.') && !is_output {
                open.push(path);
            } else if path
                .extension()
                .is_some_and(|found| extensions.iter().any(|extension| found == *extension))
            {
                found.push(
                    path.strip_prefix(root())
                        .expect("it lies below the root")
                        .to_path_buf(),
                );
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn modules_import_only_listed_modules() {
    let files = rust_files("src");
    assert!(files.len() > 20, "the source was not found: {files:?}");
    let broken: Vec<String> = files
        .iter()
        .flat_map(|file| {
            violations(file, &read(file))
                .into_iter()
                .map(|(line, what)| format!("{}:{line}: {what}", file.display()))
        })
        .collect();
    assert!(
        broken.is_empty(),
        "the layers are broken:\n{}",
        broken.join("\n")
    );
}

#[test]
fn files_do_not_import_each_other_in_cycles() {
    let sources: Vec<(String, String)> = rust_files("src")
        .iter()
        .map(|file| (file.display().to_string(), read(file)))
        .collect();
    let graph = Graph::of(
        sources
            .iter()
            .map(|(file, source)| (file.as_str(), source.as_str())),
    );
    if let Some(cycle) = graph.shortest_cycle() {
        panic!("files import each other in a cycle:\n{cycle}");
    }
}

#[test]
fn only_the_module_event_reads_event_bytes() {
    let read_bytes = |file: &PathBuf| {
        let found = event_bytes::violations(file, &read(file)).into_iter();
        found
            .map(|(line, what)| format!("{}:{line}: {what}", file.display()))
            .collect::<Vec<_>>()
    };
    let broken: Vec<String> = rust_files("src").iter().flat_map(read_bytes).collect();
    assert!(
        broken.is_empty(),
        "other modules know the bytes of events:\n{}",
        broken.join("\n")
    );
}

#[test]
fn the_table_names_the_modules_that_exist_and_looks_only_down() {
    let mut modules: BTreeSet<String> = BTreeSet::new();
    for entry in std::fs::read_dir(root().join("src")).expect("src/ can be listed") {
        let path = entry.expect("an entry of src/ can be read").path();
        modules.insert(
            path.file_stem()
                .expect("it has a name")
                .to_string_lossy()
                .into_owned(),
        );
    }
    modules.retain(|module| module != "lib");
    let listed: BTreeSet<String> = LAYERS
        .iter()
        .map(|(module, _)| (*module).to_owned())
        .collect();
    assert_eq!(modules, listed, "left: modules in src/, right: the table");
    for (index, (module, imports)) in LAYERS.iter().enumerate() {
        for import in *imports {
            let below = LAYERS[..index].iter().any(|(name, _)| name == import);
            assert!(below, "{module} may not look up to {import}");
        }
    }
}

#[test]
fn architecture_md_shows_the_same_table() {
    let text = read(Path::new("ARCHITECTURE.md"));
    let shown = shown_table(&text);
    let law: Vec<(String, BTreeSet<String>)> = LAYERS
        .iter()
        .map(|(module, imports)| {
            (
                (*module).to_owned(),
                imports.iter().map(|&name| name.to_owned()).collect(),
            )
        })
        .collect();
    assert_eq!(shown, law, "left: ARCHITECTURE.md, right: the law");
}

#[test]
fn architecture_md_names_only_existing_paths() {
    let text = read(Path::new("ARCHITECTURE.md"));
    let named = named_paths(&text);
    assert!(named.len() > 15, "only {named:?} were taken for paths");
    let ghosts: Vec<&String> = named
        .iter()
        .filter(|path| !root().join(path).exists())
        .collect();
    assert!(
        ghosts.is_empty(),
        "ARCHITECTURE.md names missing items: {ghosts:?}"
    );
}

#[test]
fn architecture_md_lists_functions_in_the_order_of_their_files() {
    let text = read(Path::new("ARCHITECTURE.md"));
    let tables = path_tables(&text);
    let steps: usize = tables.iter().map(Vec::len).sum();
    assert!(
        tables.len() > 5 && steps > 60,
        "only {tables:?} were read as steps of the two paths"
    );
    for table in tables {
        let wrong = first_step_out_of_order(&table, |file| read(Path::new(file)));
        assert_eq!(
            wrong, None,
            "ARCHITECTURE.md lists a function that its file does not have at this place"
        );
    }
}

/// A row of a table of steps: the file and the function.
type PathStep = (String, String);

/// The first step whose file does not define the function, or defines it only before the function of an earlier step.
fn first_step_out_of_order(steps: &[PathStep], read: impl Fn(&str) -> String) -> Option<&PathStep> {
    let mut reached = BTreeMap::new();
    steps.iter().find(|(file, function)| {
        let (text, signature) = (read(file), format!("fn {function}"));
        let from = reached.get(file).copied().unwrap_or(0);
        let mut definitions = text
            .match_indices(&signature)
            .filter(|(at, name)| text[at + name.len()..].starts_with(['(', '<']));
        let found = definitions.find(|(at, _)| *at >= from);
        found.map(|(at, _)| reached.insert(file, at)).is_none()
    })
}

/// The rows below each header `| step | file | function |`.
fn path_tables(text: &str) -> Vec<Vec<PathStep>> {
    let mut tables = Vec::new();
    let mut lines = text.lines();
    while lines.any(|line| line == "| step | file | function |") {
        let rows = lines
            .by_ref()
            .skip(1)
            .take_while(|line| line.starts_with('|'));
        let steps = rows.map(|row| {
            let names: Vec<&str> = quoted(row).collect();
            let [.., file, function] = names[..] else {
                panic!("no file and function: {row}")
            };
            (file.to_owned(), function.to_owned())
        });
        tables.push(steps.collect());
    }
    tables
}

#[test]
fn steps_out_of_order_are_found() {
    let text = "| step | file | function |\n|---|---|---|\n| x | `a.rs` | `f` |\n| `> ` | `b.rs` | `g` |\n| y | `a.rs` | `h` |\n\n\
        | step | file | function |\n|---|---|---|\n| z | `a.rs` | `f` |\n";
    let tables = path_tables(text);
    assert_eq!(tables.iter().map(Vec::len).collect::<Vec<_>>(), [3, 1]);
    let wrong = |source: &str| {
        let found = first_step_out_of_order(&tables[0], |_| source.to_owned());
        found.map(|(_, function)| function.clone())
    };
    assert_eq!(wrong("fn f() {} fn g<T>() {} fn h() {}"), None);
    assert_eq!(wrong("fn h() {} fn f() {} fn g() {}"), Some("h".to_owned()));
    assert_eq!(wrong("fn h() {} fn f() {} fn g() {} fn h() {}"), None);
    assert_eq!(
        wrong("fn f() {} fn great() {} fn h() {}"),
        Some("g".to_owned())
    );
}

/// Test modules that call the library. All others use a running gateway only, for example the tests of prompts and streams.
/// They do not depend on the names in `src/`.
const USE_THE_LIBRARY: [&str; 24] = [
    "agents",
    "architecture",
    "config",
    "config_reference",
    "cors",
    "coverage",
    "docs",
    "files",
    "fleet",
    "golden",
    "guides",
    "keys",
    "log",
    "models",
    "openapi",
    "panics",
    "policy",
    "process",
    "recipes",
    "replays",
    "route_walk",
    "scale",
    "store",
    "text_safety",
];

#[test]
fn tests_of_prompts_and_streams_use_a_running_gateway_only() {
    let mut found = BTreeSet::new();
    for file in rust_files("tests/it") {
        if read(&file).contains("acp_gateway::") || read(&file).contains("acp_gateway_models::") {
            let below = file.strip_prefix("tests/it").expect("it was listed there");
            let module = below
                .components()
                .next()
                .expect("it has a name")
                .as_os_str()
                .to_string_lossy();
            found.insert(module.trim_end_matches(".rs").to_owned());
        }
    }
    assert_eq!(
        found,
        USE_THE_LIBRARY.map(str::to_owned).into(),
        "left: modules that call the library"
    );
    let allocations =
        read(Path::new("tests/allocations/main.rs")).replace("acp_gateway::cli::main()", "");
    assert!(
        !allocations.contains("acp_gateway::"),
        "the test of allocations starts the gateway and calls nothing"
    );
}

/// The parts of a text between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The rows below the header `| module | owns | may import |`.
fn shown_table(text: &str) -> Vec<(String, BTreeSet<String>)> {
    text.lines()
        .skip_while(|line| !(line.starts_with("| module ") && line.contains("may import")))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
            let module = quoted(cells[0])
                .next()
                .expect("a row names its module in backticks");
            let imports = quoted(cells.last().expect("a row has cells"))
                .map(str::to_owned)
                .collect();
            (module.trim_end_matches('/').to_owned(), imports)
        })
        .collect()
}

/// The paths of the repository in a text: in backticks, below a known folder or with a known ending.
fn named_paths(text: &str) -> BTreeSet<String> {
    const FOLDERS: [&str; 9] = [
        "src/", "tests/", "web/", "docs/", "scripts/", "openapi/", "benches/", ".ci/", ".github/",
    ];
    const ENDINGS: [&str; 6] = [".md", ".toml", ".rs", ".yaml", ".json", "Dockerfile"];
    quoted(text)
        .filter(|piece| !piece.contains(char::is_whitespace) && !piece.starts_with('/'))
        .filter(|piece| {
            FOLDERS.iter().any(|folder| piece.starts_with(folder))
                || ENDINGS.iter().any(|ending| piece.ends_with(ending))
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_table_and_paths_are_read_from_markdown() {
    let text = "See `src/app.rs`, `/v1/events`, `session/update` and `deny.toml`.\n\n\
        | module | owns | may import |\n|---|---|---|\n| `a/` | x | nothing |\n| `b` | y | `a`, `c` |\n\nend";
    let table: Vec<(String, BTreeSet<String>)> = vec![
        ("a".to_owned(), BTreeSet::new()),
        (
            "b".to_owned(),
            BTreeSet::from(["a".to_owned(), "c".to_owned()]),
        ),
    ];
    assert_eq!(shown_table(text), table);
    let paths = BTreeSet::from(["src/app.rs".to_owned(), "deny.toml".to_owned()]);
    assert_eq!(named_paths(&text.replace("`a`, `c`", "")), paths);
}
