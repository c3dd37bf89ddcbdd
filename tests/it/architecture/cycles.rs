//! Import cycles between files. A re-exported name counts as an import of the file that defines the name.

use std::collections::{BTreeMap, VecDeque};

use super::imports::{Imports, PathUse};

/// The path of a module, as in `["http", "stream"]`. The root of the crate is empty.
type Module = Vec<String>;

/// The bound on re-exports of re-exports.
const MAX_REEXPORTS: usize = 10;

/// An import of another file.
#[derive(Debug)]
struct Import {
    line: usize,
    path: String,
}

#[derive(Debug, Default)]
pub(crate) struct Graph {
    files: BTreeMap<Module, String>,
    imports: BTreeMap<Module, BTreeMap<Module, Import>>,
}

impl Graph {
    /// Builds the graph of the files, each with its path from the repository and its source.
    pub(crate) fn of<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut graph = Self::default();
        let mut parsed = BTreeMap::new();
        for (file, source) in files {
            let mut module: Module = file
                .trim_end_matches(".rs")
                .split('/')
                .skip_while(|part| *part != "src")
                .skip(1)
                .map(str::to_owned)
                .collect();
            if module.iter().any(|part| part == "tests") || module == ["main"] {
                continue;
            }
            module.pop_if(|last| last == "mod" || last == "lib");
            parsed.insert(module.clone(), Imports::of(source));
            graph.files.insert(module, file.to_owned());
        }
        let resolver = Resolver { files: &parsed };
        for (module, imports) in &parsed {
            let mut edges = BTreeMap::new();
            for (target, path) in resolver.imported(module, imports) {
                if target != *module && parsed.contains_key(&target) {
                    let import = Import {
                        line: path.line,
                        path: path.parts.join("::"),
                    };
                    edges.entry(target).or_insert(import);
                }
            }
            graph.imports.insert(module.clone(), edges);
        }
        graph
    }

    /// Describes the shortest cycle, one import on each line.
    pub(crate) fn shortest_cycle(&self) -> Option<String> {
        let cycles = self
            .imports
            .keys()
            .filter_map(|start| self.path_back_to(start));
        let cycle = cycles.min_by_key(Vec::len)?;
        let lines = cycle
            .iter()
            .zip(cycle.iter().cycle().skip(1))
            .map(|(from, to)| {
                let Import { line, path } = &self.imports[*from][*to];
                format!(
                    "{}:{line} imports {} ({path})",
                    self.files[*from], self.files[*to]
                )
            });
        Some(lines.collect::<Vec<_>>().join("\n"))
    }

    /// The modules of the shortest cycle through `start`, which comes first.
    fn path_back_to<'a>(&'a self, start: &'a Module) -> Option<Vec<&'a Module>> {
        let mut previous: BTreeMap<&Module, &Module> = BTreeMap::new();
        let mut open = VecDeque::from([start]);
        while let Some(module) = open.pop_front() {
            for target in self.imports[module].keys() {
                if target == start {
                    let mut cycle = vec![module];
                    while let Some(before) = previous.get(cycle[cycle.len() - 1]) {
                        cycle.push(before);
                    }
                    cycle.reverse();
                    return Some(cycle);
                }
                if !previous.contains_key(target) {
                    previous.insert(target, module);
                    open.push_back(target);
                }
            }
        }
        None
    }
}

struct Resolver<'a> {
    files: &'a BTreeMap<Module, Imports>,
}

impl Resolver<'_> {
    /// The modules whose items the file uses, each with the path that names it.
    fn imported<'a>(&self, module: &Module, imports: &'a Imports) -> Vec<(Module, &'a PathUse)> {
        let mut found = Vec::new();
        // A module in scope by its name. Its import alone is not a use of its items.
        let mut modules: BTreeMap<&str, Module> = BTreeMap::new();
        for path in &imports.uses {
            let Some(mut absolute) = self.absolute(module, &path.parts) else {
                continue;
            };
            if absolute.pop_if(|last| last == "*").is_none() && self.files.contains_key(&absolute) {
                modules.insert(&path.name, absolute);
            } else {
                found.extend(self.definition(&absolute, 0).map(|target| (target, path)));
            }
        }
        for path in &imports.inline {
            let absolute = match modules.get(path.name.as_str()) {
                Some(base) => Some([base.as_slice(), &path.parts[1..]].concat()),
                None => self.absolute(module, &path.parts),
            };
            let target = absolute.and_then(|absolute| self.definition(&absolute, 0));
            found.extend(target.map(|target| (target, path)));
        }
        found
    }

    /// The path from the root of the crate; `None` for a path of another crate or of an item in scope.
    fn absolute(&self, module: &Module, parts: &[String]) -> Option<Module> {
        let (first, rest) = parts.split_first()?;
        let mut base = module.clone();
        match first.as_str() {
            "crate" => return Some(rest.to_vec()),
            "self" => return Some([base.as_slice(), rest].concat()),
            "super" => {
                let climbs = parts.iter().take_while(|part| *part == "super").count();
                base.truncate(base.len().checked_sub(climbs)?);
                return Some([base.as_slice(), &parts[climbs..]].concat());
            }
            _ => {}
        }
        base.push(first.clone());
        let is_child = self.files.contains_key(&base);
        is_child.then(|| [base.as_slice(), rest].concat())
    }

    /// The module that defines the item with an absolute path. Follows re-exports.
    fn definition(&self, path: &[String], reexports: usize) -> Option<Module> {
        let depth = (0..=path.len())
            .rev()
            .find(|&depth| self.files.contains_key(&path[..depth]))?;
        let module = path[..depth].to_vec();
        let rest = &path[depth..];
        let imports = &self.files[&module];
        let Some(name) = rest.first().filter(|name| !imports.defined.contains(*name)) else {
            return Some(module);
        };
        if reexports == MAX_REEXPORTS {
            return Some(module);
        }
        let named = imports
            .reexports
            .iter()
            .find(|reexport| reexport.name == *name);
        if let Some(reexport) = named {
            let mut target = self.absolute(&module, &reexport.parts)?;
            if target == path[..=depth] {
                return Some(module);
            }
            target.extend_from_slice(&rest[1..]);
            return self.definition(&target, reexports + 1);
        }
        let globs = imports
            .reexports
            .iter()
            .filter(|reexport| reexport.name == "*");
        let mut through_glob = globs.filter_map(|glob| {
            let mut target = self.absolute(&module, &glob.parts)?;
            target.pop();
            target.extend_from_slice(rest);
            self.definition(&target, reexports + 1)
        });
        Some(through_glob.next().unwrap_or(module))
    }
}

#[cfg(test)]
fn cycle(files: &[(&str, &str)]) -> Option<String> {
    Graph::of(files.iter().copied()).shortest_cycle()
}

#[test]
fn a_cycle_is_reported_with_files_and_lines() {
    let a = "\nuse crate::b::B;\npub struct A;";
    for (b, path) in [
        ("use super::a::A; pub struct B;", "super::a::A"),
        ("use super::a::*; pub struct B;", "super::a::*"),
        (
            "use crate::{std, a::{self, A}}; pub struct B;",
            "crate::a::A",
        ),
        ("use super::a; pub struct B(a::A);", "a::A"),
        ("pub struct B(Vec<crate::a::A>);", "crate::a::A"),
        ("fn f() { while g!(super::a::A) {} }", "super::a::A"),
        ("#[serde(with = \"super::a\")] struct B;", "super::a"),
        (
            "mod inner { fn f() { super::super::a::f() } }",
            "super::a::f",
        ),
    ] {
        let back = format!("src/b.rs:1 imports src/a.rs ({path})");
        let expected = format!("src/a.rs:2 imports src/b.rs (crate::b::B)\n{back}");
        assert_eq!(
            cycle(&[("src/a.rs", a), ("src/b.rs", b)]),
            Some(expected),
            "{b}"
        );
    }
}

#[test]
fn modules_tests_and_reexports_are_no_imports() {
    let a = (
        "src/a/mod.rs",
        "mod b; pub use b::B; pub use self::c::C; mod c; pub struct A;",
    );
    let b = "use super::A; #[cfg(test)] use super::C; mod inner { use super::b; }\n#[cfg(test)] mod tests { use super::C; }";
    assert_eq!(
        cycle(&[
            a,
            ("src/a/b.rs", b),
            ("src/a/c.rs", "use super::B; pub struct C;")
        ]),
        None
    );
    assert_eq!(
        cycle(&[
            a,
            ("src/a/b.rs", "pub struct B;"),
            ("src/a/b/tests.rs", "use super::super::A;")
        ]),
        None
    );
}

#[test]
fn a_reexport_counts_as_its_definition() {
    let a = ("src/a/mod.rs", "mod b; mod c; pub use b::B; pub use c::*;");
    let b = ("src/a/b.rs", "use super::C; pub struct B;");
    let expected =
        "src/a/b.rs:1 imports src/a/c.rs (super::C)\nsrc/a/c.rs:1 imports src/a/b.rs (crate::a::B)";
    let c = ("src/a/c.rs", "use crate::a::B; pub struct C;");
    assert_eq!(cycle(&[a, b, c]).as_deref(), Some(expected));
}

#[test]
fn the_shortest_cycle_is_reported() {
    let files = [
        ("src/a.rs", "use super::b::B; pub struct A;"),
        ("src/b.rs", "use super::c::C; pub struct B;"),
        (
            "src/c.rs",
            "use super::a::A; use super::d::D; pub struct C;",
        ),
        ("src/d.rs", "use super::c::C; pub struct D;"),
    ];
    let short =
        "src/c.rs:1 imports src/d.rs (super::d::D)\nsrc/d.rs:1 imports src/c.rs (super::c::C)";
    assert_eq!(cycle(&files).as_deref(), Some(short));
    assert_eq!(
        cycle(&files[..3]).map(|cycle| cycle.lines().count()),
        Some(3)
    );
    assert_eq!(cycle(&files[..2]), None);
}
