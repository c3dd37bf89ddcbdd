//! The number of fields of each struct.

use super::tokens::{Kind, Token, tokens, without_tests};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Struct {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) fields: usize,
}

/// Lists the structs of a file. Fields that exist only in tests do not count.
pub(crate) fn structs(source: &str) -> Vec<Struct> {
    let tokens = without_tests(&tokens(source));
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let name = tokens.get(at + 1).map(|next| &next.kind);
        if let (Kind::Word(keyword), Some(Kind::Word(name))) = (&token.kind, name)
            && keyword == "struct"
        {
            let body = tokens[at..]
                .iter()
                .position(|token| matches!(token.kind, Kind::Punct('{' | '(' | ';')));
            let fields = body.map_or(0, |body| fields(&tokens[at + body..]));
            found.push(Struct {
                name: name.clone(),
                line: token.line,
                fields,
            });
        }
    }
    found
}

/// Counts the fields of the body at the start of `tokens`: the single colons of a struct with names, and the
/// types of a tuple.
fn fields(tokens: &[Token]) -> usize {
    let mut depth = 0_usize;
    let mut fields = 0;
    let is_tuple = tokens
        .first()
        .is_some_and(|open| open.kind == Kind::Punct('('));
    let mut is_type = false;
    for token in tokens {
        match token.kind {
            Kind::Punct('(' | '[' | '{' | '<') => depth += 1,
            Kind::Punct(')' | ']' | '}' | '>') => depth = depth.saturating_sub(1),
            Kind::Punct(':') if depth == 1 && !is_tuple => fields += 1,
            Kind::Punct(',') if depth == 1 => is_type = false,
            Kind::Word(_) if depth == 1 && is_tuple && !is_type => {
                is_type = true;
                fields += 1;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    fields
}

#[test]
fn fields_are_counted() {
    let source = "struct A;\nstruct B { #[x(y: z)] a: c::D<E, F>, pub(super) g: [u8; 2], #[cfg(test)] h: u8 }\n\
        pub struct I<'a>(pub J<K, L>, &'a (M, N));\nstruct O {}";
    let found: Vec<_> = structs(source)
        .into_iter()
        .map(|found| (found.name, found.line, found.fields))
        .collect();
    let expected = [("A", 1, 0), ("B", 2, 2), ("I", 3, 2), ("O", 4, 0)];
    assert_eq!(
        found,
        expected.map(|(name, line, fields)| (name.to_owned(), line, fields))
    );
}
