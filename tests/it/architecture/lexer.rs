//! As much of Rust's lexical grammar as it takes to find paths: no comment and no string is taken for code.

/// A piece of source, with the line it stands on.
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
    /// The text of a string literal: attributes may hide a path in one.
    Text(String),
}

pub(crate) fn tokens(source: &str) -> Vec<Token> {
    let mut lexer = Lexer { chars: source.chars().collect(), at: 0, line: 1 };
    let mut found = Vec::new();
    while lexer.at < lexer.chars.len() {
        let line = lexer.line;
        if let Some(kind) = lexer.next() {
            found.push(Token { line, kind });
        }
    }
    found
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: usize,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn bump(&mut self) -> char {
        let now = self.peek(0);
        self.line += usize::from(now == '\n');
        self.at += 1;
        now
    }

    /// Takes one token; `None` for what is not code.
    fn next(&mut self) -> Option<Kind> {
        match (self.peek(0), self.peek(1)) {
            ('/', '/') => self.line_comment(),
            ('/', '*') => self.block_comment(),
            ('"', _) => Some(self.string()),
            ('\'', _) => self.quote(),
            (':', ':') => {
                self.at += 2;
                Some(Kind::PathSep)
            }
            (now, _) if now.is_alphanumeric() || now == '_' => Some(self.word()),
            (now, _) => {
                self.bump();
                (!now.is_whitespace()).then_some(Kind::Punct(now))
            }
        }
    }

    fn line_comment(&mut self) -> Option<Kind> {
        while self.at < self.chars.len() && self.peek(0) != '\n' {
            self.bump();
        }
        None
    }

    fn block_comment(&mut self) -> Option<Kind> {
        let mut depth = 0;
        while self.at < self.chars.len() {
            match (self.peek(0), self.peek(1)) {
                ('/', '*') => depth += 1,
                ('*', '/') => depth -= 1,
                _ => {
                    self.bump();
                    continue;
                }
            }
            self.at += 2;
            if depth == 0 {
                break;
            }
        }
        None
    }

    fn string(&mut self) -> Kind {
        self.bump();
        let mut text = String::new();
        while self.at < self.chars.len() {
            match self.bump() {
                '"' => break,
                '\\' => {
                    self.bump();
                }
                other => text.push(other),
            }
        }
        Kind::Text(text)
    }

    fn raw_string(&mut self, hashes: usize) -> Kind {
        self.at += hashes + 1;
        let mut text = String::new();
        while self.at < self.chars.len() {
            if self.peek(0) == '"' && (1..=hashes).all(|ahead| self.peek(ahead) == '#') {
                self.at += hashes + 1;
                break;
            }
            text.push(self.bump());
        }
        Kind::Text(text)
    }

    /// A character literal is skipped; of a lifetime only the quote.
    fn quote(&mut self) -> Option<Kind> {
        if self.peek(1) == '\\' {
            self.at += 3;
            while self.at < self.chars.len() && self.bump() != '\'' {}
        } else if self.peek(2) == '\'' {
            self.bump();
            self.bump();
            self.bump();
        } else {
            self.bump();
        }
        None
    }

    fn word(&mut self) -> Kind {
        let mut word = String::new();
        while self.peek(0).is_alphanumeric() || self.peek(0) == '_' {
            word.push(self.bump());
        }
        let hashes = self.chars.iter().skip(self.at).take_while(|&&next| next == '#').count();
        if matches!(word.as_str(), "r" | "br" | "cr") && self.peek(hashes) == '"' {
            return self.raw_string(hashes);
        }
        if word == "r" && hashes == 1 {
            self.bump();
            return self.word();
        }
        Kind::Word(word)
    }
}

#[test]
fn comments_strings_and_quotes_are_no_code() {
    let source = "a // b\n/* c /* d */ e */ 'f' '\\'' '\\u{1}' &'g \"h\\\"i\" r#\"j\"k\"# r#type::l b\"m\"";
    let found: Vec<String> = tokens(source)
        .into_iter()
        .map(|token| match token.kind {
            Kind::Word(word) => format!("{}:{word}", token.line),
            Kind::Text(text) => format!("{}:\"{text}\"", token.line),
            Kind::Punct(punct) => punct.to_string(),
            Kind::PathSep => "::".to_owned(),
        })
        .collect();
    assert_eq!(found.join(" "), "1:a & 2:g 2:\"hi\" 2:\"j\"k\" 2:type :: 2:l 2:b 2:\"m\"");
}
