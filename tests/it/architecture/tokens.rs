//! The tokens of a Rust file with their lines, without ordinary comments, numbers and character literals. A doc comment
//! is an attribute with a text.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) line: usize,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Word(String),
    /// `::`
    PathSep,
    Punct(char),
    /// The text of a string literal: an attribute may contain a path as text.
    Text(String),
}

/// Tokenizes a file. Brackets are single tokens, so that the list is flat.
pub(crate) fn tokens(source: &str) -> Vec<Token> {
    let stream: TokenStream = source
        .parse()
        .unwrap_or_else(|error| panic!("{error} in:\n{source}"));
    let mut found = Vec::new();
    flatten(stream, &mut found);
    found
}

fn flatten(stream: TokenStream, found: &mut Vec<Token>) {
    let mut trees = stream.into_iter().peekable();
    while let Some(tree) = trees.next() {
        let line = tree.span().start().line;
        let kind = match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ('(', ')'),
                    Delimiter::Brace => ('{', '}'),
                    Delimiter::Bracket => ('[', ']'),
                    Delimiter::None => continue,
                };
                found.push(Token {
                    line,
                    kind: Kind::Punct(open),
                });
                flatten(group.stream(), found);
                let line = group.span_close().start().line;
                found.push(Token {
                    line,
                    kind: Kind::Punct(close),
                });
                continue;
            }
            TokenTree::Ident(word) => {
                Kind::Word(word.to_string().trim_start_matches("r#").to_owned())
            }
            TokenTree::Punct(punct) => match (punct.as_char(), punct.spacing()) {
                ('\'', _) => continue,
                (':', Spacing::Joint) => {
                    trees.next();
                    Kind::PathSep
                }
                (other, _) => Kind::Punct(other),
            },
            TokenTree::Literal(literal) => {
                let literal = literal.to_string();
                let text = literal
                    .split_once('"')
                    .and_then(|(_, rest)| rest.rsplit_once('"'));
                match text {
                    Some((text, _)) => Kind::Text(text.to_owned()),
                    None => continue,
                }
            }
        };
        found.push(Token { line, kind });
    }
}

/// Removes each item, statement and field with the attribute `#[cfg(test)]`.
pub(crate) fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let attribute = self::tokens("#[cfg(test)]");
    let is_attribute = |at: usize| {
        let kinds = tokens.iter().skip(at).zip(&attribute);
        kinds
            .filter(|(token, expected)| token.kind == expected.kind)
            .count()
            == attribute.len()
    };
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if is_attribute(at) {
            at = end_of_item(tokens, at + attribute.len());
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

/// Returns the position after the item at `at`: after its block, its `;` or its `,`, or before the end of the
/// block that contains it.
fn end_of_item(tokens: &[Token], mut at: usize) -> usize {
    let mut depth = 0_usize;
    let mut attribute = false;
    while let Some(token) = tokens.get(at) {
        let Kind::Punct(punct) = token.kind else {
            at += 1;
            continue;
        };
        attribute |= depth == 0 && punct == '#';
        let arrow = matches!(
            at.checked_sub(1).map(|before| &tokens[before].kind),
            Some(Kind::Punct('-' | '='))
        );
        match punct {
            '(' | '[' | '{' | '<' => depth += 1,
            '}' | ']' | ')' if depth == 0 => return at,
            '>' if arrow => {}
            '}' | ']' | ')' | '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
        if depth == 0 && matches!(punct, '}' | ';' | ',') && !attribute {
            return at;
        }
        attribute &= !(depth == 0 && punct == ']');
    }
    at
}

#[cfg(test)]
fn shown(tokens: &[Token]) -> String {
    let shown: Vec<String> = tokens
        .iter()
        .map(|token| match &token.kind {
            Kind::Word(word) => format!("{}:{word}", token.line),
            Kind::Text(text) => format!("{}:\"{text}\"", token.line),
            Kind::Punct(punct) => punct.to_string(),
            Kind::PathSep => "::".to_owned(),
        })
        .collect();
    shown.join(" ")
}

#[test]
fn comments_numbers_and_lifetimes_are_no_tokens() {
    let source =
        "a // b\n/* c /* d */ e */ 'f' '\"' 7 &'g \"h\\\"i\" (r#\"j\"k\"#)\nr#type::l b\"m\"";
    let expected = "1:a & 2:g 2:\"h\\\"i\" ( 2:\"j\"k\" ) 3:type :: 3:l 3:\"m\"";
    assert_eq!(shown(&tokens(source)), expected);
}

#[test]
fn items_for_tests_are_removed() {
    for (source, rest) in [
        ("#[cfg(test)] mod tests { use a; } b", "1:b"),
        ("#[cfg(test)] mod tests; b", "1:b"),
        (
            "#[cfg(test)] #[path = \"x\"] fn f<A, B>(c: [A; 2]) -> B { {} } b",
            "1:b",
        ),
        ("{ #[cfg(test)] a: M<A, B>, b }", "{ 1:b }"),
        ("{ b, #[cfg(test)] a: A }", "{ 1:b , }"),
        ("#[cfg(unix)] b", "# [ 1:cfg ( 1:unix ) ] 1:b"),
    ] {
        assert_eq!(shown(&without_tests(&tokens(source))), rest, "{source}");
    }
}
