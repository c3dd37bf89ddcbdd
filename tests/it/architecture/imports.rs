//! The imports, re-exports, definitions and paths of a file.

use std::collections::BTreeSet;

use super::tokens::{Kind, Token, tokens, without_tests};

/// A path as the file writes it, and its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathUse {
    pub(crate) parts: Vec<String>,
    /// The name in this file: the last part, or the name after `as`.
    pub(crate) name: String,
    pub(crate) line: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Imports {
    /// The paths of `use`.
    pub(crate) uses: Vec<PathUse>,
    /// The paths of `pub use`.
    pub(crate) reexports: Vec<PathUse>,
    /// The paths in code and in attributes.
    pub(crate) inline: Vec<PathUse>,
    /// The names of the items that the file defines.
    pub(crate) defined: BTreeSet<String>,
}

impl Imports {
    /// Collects the paths of a file. Tests are ignored.
    pub(crate) fn of(source: &str) -> Self {
        let tokens = without_tests(&tokens(source));
        let mut walk = Walk {
            tokens,
            at: 0,
            depth: 0,
            modules: Vec::new(),
            found: Self::default(),
        };
        while walk.at < walk.tokens.len() {
            walk.step();
        }
        walk.found
    }
}

struct Walk {
    tokens: Vec<Token>,
    at: usize,
    /// The number of open braces.
    depth: usize,
    /// The depths at which the enclosing inline modules begin.
    modules: Vec<usize>,
    found: Imports,
}

impl Walk {
    fn word(&self, at: usize) -> Option<&str> {
        match &self.tokens.get(at)?.kind {
            Kind::Word(word) => Some(word),
            _ => None,
        }
    }

    fn is(&self, at: usize, punct: char) -> bool {
        self.tokens
            .get(at)
            .is_some_and(|token| token.kind == Kind::Punct(punct))
    }

    fn is_sep(&self, at: usize) -> bool {
        self.tokens
            .get(at)
            .is_some_and(|token| token.kind == Kind::PathSep)
    }

    fn step(&mut self) {
        let at = self.at;
        let line = self.tokens[self.at].line;
        self.at += 1;
        match self.tokens[at].kind.clone() {
            Kind::Punct('{') => {
                self.depth += 1;
                if at >= 2 && self.word(at - 2) == Some("mod") {
                    self.modules.push(self.depth);
                }
            }
            Kind::Punct('}') => {
                self.modules.pop_if(|depth| *depth == self.depth);
                self.depth = self.depth.saturating_sub(1);
            }
            Kind::Punct(_) | Kind::PathSep => {}
            // `#[serde(with = "super::x")]` is a path too.
            Kind::Text(text) => {
                if ["crate::", "super::", "self::"]
                    .iter()
                    .any(|root| text.starts_with(root))
                {
                    self.add_inline(text.split("::").map(str::to_owned).collect(), line);
                }
            }
            Kind::Word(word) => match word.as_str() {
                "use" if !self.is(self.at, '<') => {
                    let public = self.is_public(at);
                    self.tree(Vec::new(), public);
                }
                "struct" | "enum" | "fn" | "const" | "static" | "type" | "trait" | "union" => {
                    let name = self.word(self.at).map(str::to_owned);
                    self.found.defined.extend(name);
                }
                "macro_rules" => {
                    let name = self.word(self.at + 1).map(str::to_owned);
                    self.found.defined.extend(name);
                }
                _ => self.path(at),
            },
        }
    }

    /// Whether `pub` or `pub(...)` precedes the word at `at`.
    fn is_public(&self, at: usize) -> bool {
        let Some(mut before) = at.checked_sub(1) else {
            return false;
        };
        if self.is(before, ')') {
            before = (0..before)
                .rev()
                .find(|&open| self.is(open, '('))
                .map_or(0, |open| open.saturating_sub(1));
        }
        self.word(before) == Some("pub")
    }

    /// Collects a path in code that begins at `at`. The path in `pub(in path)` is not an import.
    fn path(&mut self, at: usize) {
        let inside = at > 0
            && (self.is_sep(at - 1)
                || (self.word(at - 1) == Some("in") && at > 2 && self.is(at - 2, '(')));
        if inside || !self.is_sep(at + 1) {
            return;
        }
        let mut parts = Vec::new();
        let mut next = at;
        while let Some(word) = self.word(next) {
            parts.push(word.to_owned());
            if !self.is_sep(next + 1) {
                break;
            }
            next += 2;
        }
        self.add_inline(parts, self.tokens[at].line);
    }

    fn add_inline(&mut self, parts: Vec<String>, line: usize) {
        if let Some(parts) = self.leave_inline_modules(parts) {
            self.found.inline.push(PathUse {
                name: parts[0].clone(),
                parts,
                line,
            });
        }
    }

    /// Collects the paths of a tree, as in `a::{b, c as d, e::*}`, and moves behind it.
    fn tree(&mut self, mut parts: Vec<String>, public: bool) {
        let line = self.tokens.get(self.at).map_or(0, |token| token.line);
        while self.at < self.tokens.len() {
            if self.is(self.at, '{') {
                self.at += 1;
                while self.at < self.tokens.len() && !self.is(self.at, '}') {
                    self.tree(parts.clone(), public);
                    self.at += usize::from(self.is(self.at, ','));
                }
                self.at += 1;
                return;
            }
            let part = if self.is(self.at, '*') {
                "*"
            } else {
                self.word(self.at).unwrap_or_default()
            };
            parts.push(part.to_owned());
            self.at += 1;
            if !self.is_sep(self.at) {
                break;
            }
            self.at += 1;
        }
        parts.pop_if(|last| last == "self");
        let mut name = parts.last().cloned().unwrap_or_default();
        if self.word(self.at) == Some("as") {
            self.word(self.at + 1)
                .unwrap_or_default()
                .clone_into(&mut name);
            self.at += 2;
        }
        if let Some(parts) = self.leave_inline_modules(parts) {
            let paths = if public {
                &mut self.found.reexports
            } else {
                &mut self.found.uses
            };
            paths.push(PathUse { parts, name, line });
        }
    }

    /// Converts a path in an inline module to a path from the file. Returns `None` if it stays in the file.
    fn leave_inline_modules(&self, mut parts: Vec<String>) -> Option<Vec<String>> {
        if !matches!(parts.first()?.as_str(), "super" | "self") {
            return Some(parts);
        }
        for _ in &self.modules {
            if parts.first()? != "super" {
                return None;
            }
            parts.remove(0);
        }
        if !self.modules.is_empty() && parts.first()? != "super" {
            parts.insert(0, "self".to_owned());
        }
        Some(parts)
    }
}

#[cfg(test)]
fn shown(paths: &[PathUse]) -> Vec<String> {
    paths
        .iter()
        .map(|path| format!("{}:{} as {}", path.line, path.parts.join("::"), path.name))
        .collect()
}

#[test]
fn trees_of_paths_are_expanded() {
    let found = Imports::of(
        "use a::{self, b::{c as d, *},\n e};\npub use super::f;\npub(in crate::g) use h as i;\nfn j() -> impl use<> K {}",
    );
    assert_eq!(
        shown(&found.uses),
        [
            "1:a as a",
            "1:a::b::c as d",
            "1:a::b::* as *",
            "2:a::e as e"
        ]
    );
    assert_eq!(shown(&found.reexports), ["3:super::f as f", "4:h as i"]);
    assert_eq!(found.defined, BTreeSet::from(["j".to_owned()]));
}

#[test]
fn paths_in_code_attributes_and_inline_modules_are_found() {
    let found = Imports::of(
        "#[serde(with = \"super::a\")] struct B(crate::c::D<e::F>);\nmacro_rules! g { () => { h!(super::i::j()) } }\n\
         mod k { use super::super::l; fn m() { super::n::o(); self::p(); } }\n#[cfg(test)] mod tests { use crate::q; }",
    );
    let inline = [
        "1:super::a as super",
        "1:crate::c::D as crate",
        "1:e::F as e",
        "2:super::i::j as super",
        "3:self::n::o as self",
    ];
    assert_eq!(shown(&found.inline), inline);
    assert_eq!(shown(&found.uses), ["3:super::l as l"]);
}
